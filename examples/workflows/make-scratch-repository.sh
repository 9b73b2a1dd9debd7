#!/bin/sh
# Make a small repository in FOLDER, and a remote that it pushes to, to try release.yaml in.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
git init -q --bare remote.git
git init -q .
git config user.name "Example User"
git config user.email "user@example.com"
git remote add origin remote.git
mkdir releases
printf '%s\n' remote.git/ releases/ dist/ __pycache__/ '*.db*' > .gitignore
printf '%s\n' 'def twice(number):' '    return 2 * number' > numbers_kit.py
printf '%s\n' 'import unittest' '' 'from numbers_kit import twice' '' '' 'class Twice(unittest.TestCase):' \
    '    def test_twice(self):' '        self.assertEqual(twice(21), 42)' > test_numbers_kit.py
cp "$here/release.yaml" .
git add .
git commit -q -m "Numbers can be doubled"
