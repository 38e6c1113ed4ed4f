#!/usr/bin/env bash
# Every check of the project, after set-up; prints the seconds of each and goes on after a failure, to show them all.
# Arguments go to pytest: tools/test.sh tests/model -k survival
# Drawn examples are the same in every run and have no deadline; --hypothesis-profile=default draws others.
set -uo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh test || exit 1
failed=()

check() { # check NAME COMMAND...
    local name=$1 begin=$SECONDS
    shift
    echo "test: $name: $*"
    "$@" || failed+=("$name")
    echo "test: $name: $((SECONDS - begin)) s"
}

check ruff .venv/bin/ruff check --output-format concise .
check floors env PYTHONPATH=typings .venv/bin/lint-imports
check pyright .venv/bin/pyright --pythonpath .venv/bin/python
check pytest .venv/bin/python -m pytest -q --durations=5 --hypothesis-profile=ci "$@"

if [ ${#failed[@]} -gt 0 ]; then
    echo "test: FAILED: ${failed[*]} ($SECONDS s)"
    exit 1
fi
echo "test: all checks passed in $SECONDS s"
