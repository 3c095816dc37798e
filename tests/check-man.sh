#!/bin/sh
# check-man.sh: the man pages and the sources agree: every call has a page with its declaration, nothing is named that
# does not exist, every constant, setting and option is told of; and the pages are laid out without a warning.
# Run in the build folder without mpirun, as a line of tests/list.

set -u
export LC_ALL=C
sources=$(cd "$(dirname "$0")/.." && pwd)
. "$sources/tests/mpirun.sh"
mpi_setup || exit 1

pages=$sources/docs/man
header=$sources/include/peercoll.h
types=$sources/include/peercoll_types.h
. "$sources/tests/checks.sh"

# The page itself, or the one that it stands for.
page_of() { # FILE
    target=$(sed -n 's|^\.so man[0-9]/||p' "$1")
    echo "$pages/${target:-$(basename "$1")}"
}

# The header's declarations, one a line and without white space: "intPEER_Comm_size(PEER_Commcomm,int*size);"
declarations() {
    awk '/^(int|const char \*)/ { on = 1 } on { text = text $0 } on && /;/ { print text; text = ""; on = 0 }' "$header" |
        tr -d ' '
}

test_calls() {
    declarations >"$folder/declarations"
    if [ ! -s "$folder/declarations" ]; then complain "no declarations in $header"; fi
    while read -r declaration; do
        name=$(echo "$declaration" | sed 's/.*\(PEER_[A-Za-z_]*\)(.*/\1/')
        if [ ! -e "$pages/$name.3" ]; then
            complain "$name has no page"
            continue
        fi
        page=$(page_of "$pages/$name.3")
        if ! sed -n 's/^\.BI* //p' "$page" | tr -d '" \n' | grep -q -F -e "$declaration"; then
            complain "$page: its synopsis has not $declaration"
        fi
        if ! sed -n '/^\.SH NAME/{n;p;}' "$page" | grep -q -w -e "$name"; then
            complain "$page: its line of names has not $name"
        fi
    done <"$folder/declarations"
}

# What pages name is in the headers or a setting.
test_names() {
    src/tools/peer_info --settings | grep -o '^PEER_[A-Z_]*' >"$folder/settings"
    cat "$folder/settings" "$header" "$types" >"$folder/known"
    for name in $(grep -h -o 'PEER_[A-Z][A-Za-z0-9_]*' "$pages"/* | sort -u); do
        if ! grep -q -w -e "$name" "$folder/known"; then complain "a page names $name, which does not exist"; fi
    done
    for name in $(sed -n 's/^ *X(\(PEER_[A-Z0-9_]*\),.*/\1/p' "$types") $(cat "$folder/settings"); do
        if ! grep -q -w -e "$name" "$pages/peercoll.7"; then complain "peercoll.7 has not $name"; fi
    done
}

test_options() {
    for program in peer_info peer_perf; do
        for option in $("src/tools/$program" --help | grep -o -e '--[a-z]*' | sort -u); do
            if ! tr -d '\\' <"$pages/$program.1" | grep -q -e "$option"; then
                complain "$program.1 has not $option"
            fi
        done
    done
}

test_installed() {
    for page in "$pages"/*; do
        if ! grep -q -w -F -e "docs/man/$(basename "$page")" "$sources/Makefile.am"; then
            complain "$page is not in Makefile.am"
        fi
        if [ ! -e "$(page_of "$page")" ]; then complain "$page stands for a page that is not there"; fi
    done
}

# From a tree like the installed one, so that a page that stands for another is found.
test_layout() {
    if ! command -v groff >/dev/null; then
        echo "without groff the layout is not tested"
        return
    fi
    for page in "$pages"/*; do
        mkdir -p "$folder/man${page##*.}"
        cp "$page" "$folder/man${page##*.}/"
    done
    for page in "$folder"/man[0-9]/*; do
        said=$(cd "$folder" && groff -man -Tutf8 -ww "${page#"$folder"/}" 2>&1 >/dev/null)
        if [ -n "$said" ]; then complain "$said"; fi
        if command -v man >/dev/null; then
            name=$(basename "$page")
            said=$(man -M "$folder" --warnings "${name##*.}" "${name%.*}" 2>&1 >/dev/null)
            if [ -n "$said" ]; then complain "man $name: $said"; fi
        fi
    done
}

test_calls
test_names
test_options
test_installed
test_layout
end_checks
