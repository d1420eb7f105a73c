#!/usr/bin/env bash
# SQLite 3.51.0 (PyPI: apsw 3.51.0.0): a sum of integers that exceeds 64 bits becomes a floating-point
# number, silently, where a column is updated in place.
#
# Seen, and expected by this script:
#   UPDATE t SET n = n + 1 on 9223372036854775807 in an ordinary table with `n INTEGER`
#       no error; the column then holds the real number 9.223372036854775808e18, and adding 1 again
#       changes nothing: counts are lost from then on
#   the same in a STRICT table
#       an error of a constraint, and the row keeps its integer
#   SELECT sum(n) over rows that exceed 64 bits together
#       an error, "integer overflow", in both
# One would guess that INTEGER columns hold integers, or that overflow is the same error everywhere.
# Whoever adds up counts in place needs STRICT tables.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target packages apsw==3.51.0.0
PYTHONPATH=$folder/packages python3 - <<'P'
import apsw

MOST = 2**63 - 1
connection = apsw.Connection(":memory:")
print("SQLite", apsw.sqlite_lib_version())
seen = {}
for name, kind in (("ordinary", ""), ("strict", " STRICT")):
    connection.execute(f"CREATE TABLE {name} (n INTEGER){kind}")
    connection.execute(f"INSERT INTO {name} VALUES (?)", (MOST,))
    try:
        for _ in range(2):
            connection.execute(f"UPDATE {name} SET n = n + 1")
        error = None
    except apsw.ConstraintError as failed:
        error = str(failed)
    (value, of), = connection.execute(f"SELECT n, typeof(n) FROM {name}")
    connection.execute(f"UPDATE {name} SET n = ?", (MOST,))
    connection.execute(f"INSERT INTO {name} VALUES (1)")
    try:
        total = list(connection.execute(f"SELECT sum(n) FROM {name}"))
    except apsw.SQLError as failed:
        total = str(failed)
    seen[name] = (value, of, error, total)
    print(name, seen[name])
assert seen["ordinary"][:3] == (2.0**63, "real", None)
assert seen["strict"][:2] == (MOST, "integer") and "cannot store REAL value in INTEGER column" in seen["strict"][2]
assert all("integer overflow" in of[3] for of in seen.values())
print("as expected")
P
