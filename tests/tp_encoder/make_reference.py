#!/usr/bin/env python3
"""make_reference.py: made reference.txt and ids.txt, with the implementation that the model was published with:

    python3 -m venv venv && venv/bin/pip install sentence-transformers
    venv/bin/python make_reference.py FOLDER      (a folder of the model with its Python configuration)

reference.txt  the unit vector of each line of sentences.txt, one a line; tp_encoder --check reads it
ids.txt        the token numbers of each line of texts.txt, one a line; tp_encoder --tokens prints them
"""
import pathlib
import platform
import sys

import sentence_transformers
import tokenizers
import torch

here = pathlib.Path(__file__).parent
model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")
made = (
    f"made by make_reference.py: sentence-transformers {sentence_transformers.__version__}, "
    f"torch {torch.__version__.split('+')[0]}, tokenizers {tokenizers.__version__}, "
    f"Python {platform.python_version()}, CPU, fp32, all-MiniLM-L6-v2"
)


def lines(name):
    return (here / name).read_text(encoding="utf-8").split("\n")[:-1]


def number(x):
    return f"{x:.6f}".replace("0.", ".", 1)


vectors = model.encode(lines("sentences.txt"), batch_size=1, normalize_embeddings=True, convert_to_numpy=True)
with open(here / "reference.txt", "w", encoding="ascii") as file:
    print(f"# The vectors of sentences.txt, {made}", file=file)
    for vector in vectors:
        print(*map(number, vector), file=file)

with open(here / "ids.txt", "w", encoding="ascii") as file:
    print(f"# The tokens of texts.txt, {made}", file=file)
    for text in lines("texts.txt"):
        print(*model.tokenizer(text, truncation=True, max_length=model.max_seq_length)["input_ids"], file=file)
