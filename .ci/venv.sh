#!/bin/sh
# Makes a virtual environment with pip in it, or says in one sentence what the machine lacks.
#   venv.sh PYTHON FOLDER
set -u
python=$1 folder=$2

if [ -z "$python" ]; then
    echo "Python 3.11 or newer is needed, and none was found (python3.11, python3). On Debian: apt-get install python3" >&2
    exit 2
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    # Debian takes ensurepip out of python3 and ships it in a package of its own.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "$python comes without ensurepip; installing Debian's python3-venv …" >&2
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv; } >/dev/null </dev/null
    fi
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "$python cannot make environments. On Debian and Ubuntu: apt-get install python3-venv" >&2
        exit 2
    fi
fi

echo "Making a Python environment in $folder with $("$python" --version) …"
"$python" -m venv --clear "$folder"
