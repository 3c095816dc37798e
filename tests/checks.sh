# checks.sh: what tests that are scripts share: checks that count what fails. Sourced (POSIX sh). $folder is for the
# test's files, $out and $err in it have what a checked command printed; end_checks ends with the verdict.

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
out=$folder/out
err=$folder/err
failures=0
: >"$out"
: >"$err"

complain() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    for printed in out err; do
        if [ -s "$folder/$printed" ]; then
            echo "  std$printed:"
            tail -n 20 "$folder/$printed" | sed 's/^/    /'
        fi
    done
}

# The command ends with status 0 and prints something that holds each pattern.
good() { # PATTERN... -- COMMAND...
    patterns=
    while [ "$1" != -- ]; do
        patterns="$patterns$1
"
        shift
    done
    shift
    if ! "$@" >"$out" 2>"$err" </dev/null; then
        complain "$* ended with an error"
        return
    fi
    while read -r pattern; do
        if [ -n "$pattern" ] && ! grep -q -e "$pattern" "$out"; then
            complain "$* printed nothing like: $pattern"
        fi
    done <<END
$patterns
END
}

# The command ends with an error and says on stderr something that holds the pattern, COUNT times.
bad() { # COUNT PATTERN COMMAND...
    count=$1
    pattern=$2
    shift 2
    if "$@" >"$out" 2>"$err" </dev/null; then
        complain "$* ended without an error"
    elif [ "$(grep -c -e "$pattern" "$err")" -ne "$count" ]; then
        complain "$* did not say $count times: $pattern"
    fi
}

end_checks() {
    if [ "$failures" -gt 0 ]; then
        echo "$failures checks failed"
        exit 1
    fi
    echo "all good"
}
