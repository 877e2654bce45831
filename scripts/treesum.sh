#!/bin/sh
# One sum over every file that git would see, committed or not.
cd "$(dirname "$0")/.." || exit 1
git ls-files -z --cached --others --exclude-standard | xargs -0 sha256sum 2>/dev/null | sha256sum
