#!/bin/sh
# Make a checkout ready to work: what is missing of the system packages, .venv, and the Python packages in it.
#
#   scripts/setup.sh demo    what the demo needs (TensorFlow, no PyTorch)
#   scripts/setup.sh all     everything: demo, tests (with an ssh server for those of disco-flash), training
#
# A second call finds the stamp of the first and does nothing. PYTHON=/path/to/python3.11 chooses the interpreter.
set -eu

cd "$(dirname "$0")/.."
level=${1:-all}
venv=.venv
constraints=requirements/constraints.txt

terminal=no # whether sudo may ask for a password
[ ! -t 0 ] || terminal=yes

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

case $level in
    demo) extras=convert ;;
    all) extras=convert,prune,lightning,plan,plot,dev ;;
    *)
        printf 'usage: scripts/setup.sh demo|all\n' >&2
        exit 2
        ;;
esac

# --- System packages (Debian, Ubuntu) ---

# Run a command as root; fails where one cannot become root.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo && { sudo -n true 2>/dev/null || [ "$terminal" = yes ]; }; then
        sudo "$@"
    else
        return 1
    fi
}

apt_install() {
    have apt-get || die "install these packages (Debian names) with your package manager, then run this again: $*"
    say "installing through apt: $*"
    if ! { as_root apt-get update -q </dev/null &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" </dev/null; } >&2; then
        die "cannot install; run as root, then run this again: apt-get install $*"
    fi
}

compiles() { printf 'int main(void) { return 0; }\n' | gcc -x c - -o /dev/null 2>/dev/null; }

# newlib is there when the cross compiler finds its specs in a real place (else it echoes the bare name).
has_newlib() {
    have arm-none-eabi-gcc || return 1
    case $(arm-none-eabi-gcc -print-file-name=nano.specs) in
        */*) return 0 ;;
        *) return 1 ;;
    esac
}

missing_packages() {
    have arm-none-eabi-gcc || echo gcc-arm-none-eabi
    has_newlib || echo libnewlib-arm-none-eabi
    have qemu-system-arm || echo qemu-system-arm
    have cmake || echo cmake
    [ "$level" != all ] || [ -x /usr/sbin/sshd ] || have sshd || echo openssh-server
    { have gcc && compiles; } || echo gcc libc6-dev
    # Debian splits venv off; only the interpreter that will make one needs it.
    [ -z "$python" ] || "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        "$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'
}

# --- Python ---

# Python 3.10 to 3.12: TensorFlow 2.19 and the reference kernels have no wheels above.
supported() {
    "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        supported "$PYTHON" || die "PYTHON=$PYTHON is not a Python 3.10, 3.11 or 3.12"
        echo "$PYTHON"
        return
    fi
    for candidate in python3.11 python3.12 python3.10 python3; do
        if have "$candidate" && supported "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    found=$(python3 --version 2>/dev/null || echo 'no python3')
    die "needs Python 3.10, 3.11 or 3.12, found $found; install one and run again with PYTHON=/path/to/python3.11"
}

create_venv() {
    say "creating $venv with $("$python" --version)"
    # A half-made environment of an interrupted call goes first.
    rm -rf "$venv"
    "$python" -m venv "$venv"
}

# What the environment was made from: a changed pin or extra makes the stamp stale.
fingerprint() {
    cat pyproject.toml "$constraints" scripts/setup.sh | cksum
    "$venv/bin/python" --version
}

stamp() { printf '%s/.disco-setup-%s' "$venv" "$1"; }

is_current() { [ -f "$(stamp "$1")" ] && [ "$(cat "$(stamp "$1")")" = "$(fingerprint)" ]; }

# --- What it comes down to ---

mkdir -p build
if have flock; then # two calls at once would install over each other
    exec 9>build/.setup.lock
    flock 9
fi

python= # the interpreter to make an environment with, if there is none yet
if [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    supported "$venv/bin/python" ||
        die "$venv holds $("$venv/bin/python" --version); needs 3.10, 3.11 or 3.12: remove $venv and run this again"
else
    python=$(find_python)
fi

missing=$(missing_packages | tr '\n' ' ')
# shellcheck disable=SC2086  # one word per package
[ -z "$missing" ] || apt_install $missing
[ -z "$python" ] || create_venv

# The stamp of `all` covers `demo`.
if is_current all || is_current "$level"; then
    exit 0
fi
say "installing Python packages into $venv (some minutes the first time)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$constraints" -e ".[$extras]" >&2 ||
    die "pip could not install the packages; its message is above. Nothing else was changed: run this again once it is put right"
fingerprint >"$(stamp "$level")"
say "ready"
