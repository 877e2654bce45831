#!/bin/sh
# Brings what the test suites need and this machine lacks: Debian packages, node-opcua and modbus-serial into scripts/interop.
# What it could not bring it names; the suites that need it are then left out by scripts/test.sh.
set -u
cd "$(dirname "$0")/.." || exit 1

missing=
need() { # COMMAND-OR-FILE PACKAGE
    command -v "$1" >/dev/null 2>&1 || [ -e "$1" ] || missing="$missing $2"
}
need gcc gcc
need /usr/include/modbus/modbus.h libmodbus-dev
need socat socat
need qemu-aarch64-static qemu-user-static
need node nodejs
need npm npm

if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: installing$missing"
        export DEBIAN_FRONTEND=noninteractive
        # The lists of a fresh machine are empty or old, but a machine without a network may have the packages cached.
        apt-get update -qq || echo "setup: the package lists could not be brought up to date"
        # shellcheck disable=SC2086 # a list of words
        apt-get install -y -qq --no-install-recommends $missing >/dev/null || echo "setup: apt-get could not install$missing"
    else
        echo "setup: only root can install$missing: apt-get install$missing"
    fi
fi

# The lock file that was last installed is kept beside it: the same one means that nothing is to do.
lock=scripts/interop/package-lock.json
stamp=scripts/interop/node_modules/.brought
if command -v npm >/dev/null 2>&1 && ! cmp -s "$lock" "$stamp"; then
    echo "setup: installing node-opcua and modbus-serial"
    if (cd scripts/interop && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error); then
        cp "$lock" "$stamp"
    else
        echo "setup: npm could not install them into scripts/interop"
    fi
fi
exit 0
