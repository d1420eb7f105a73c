#!/usr/bin/env bash
# Checks the SQL of docs/fleet.md (Tables for other programs, Segments) with DuckDB: a hub gets random jobs,
# its tables are exported, as lines and as Parquet, and DuckDB's sums have to be those of the hub's report. DuckDB is installed in a
# temporary folder. APEX=target/debug/apex scripts/hub-duckdb.sh
set -euo pipefail
cd "$(dirname "$0")/.."
apex=$(realpath "${APEX:-target/release/apex}")
page=$(realpath docs/fleet.md)
folder=$(mktemp -d)
hub=
trap '[ -z "$hub" ] || kill "$hub"; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'duckdb==2.0.1'
cd "$folder"
"$apex" hub --listen 127.0.0.1:0 --database hub.db >address &
hub=$!
until grep -q http address; do sleep 0.2; done
"$folder/venv/bin/python" - "$(tr -d '\n' <address)" "$page" "$apex" <<'PYTHON'
import json, random, re, subprocess, sys, time, urllib.request
import duckdb
address, page, apex = sys.argv[1:]
random.seed(7)
now = time.time_ns()
for number in range(300):
    parts = [random.randrange(10**9) for _ in range(13)]
    times = dict(zip(["kernels_us", "collectives_us", "waiting_us", "copies_us"], parts))
    times |= {"idle_us": parts[4:12], "unknown_us": parts[12], "outside_us": random.randrange(10**9)}
    message = {
        "schema": "apex.aggregate/1", "recording": f"{number:032x}", "sequence": 1, "job": {"id": f"job {number // 3}"},
        "owner": random.choice(["ada", "grace", "o'neill"]), "host": f"node{number % 40}", "command": ["python", "train.py"],
        "started_ns": now - random.randrange(3 * 10**15), "as_of_ns": now, "ended": {"at_ns": now, "status": 0},
        "devices": [{"name": "NVIDIA H200", "uuid": f"GPU-{random.randrange(60)}",
                     "energy": {"mj": random.randrange(10**10), "us": 10**9, "idle_mw": 75000} if number % 3 else None}],
        "uses": [{"device": 0, "launches": number, "times": times}],
    }
    request = urllib.request.Request(address + "api/v1/aggregates", json.dumps(message).encode(), {"Content-Type": "application/json"})
    assert urllib.request.urlopen(request).status == 200
for table in ["jobs", "days"]:
    with open(f"{table}.ndjson", "w") as file:
        subprocess.run([apex, "hub", "export", "--database", "hub.db", table], stdout=file, check=True)
sql, energy = re.findall(r"```sql\n(.*?)```", open(page).read(), re.S)[:2]
by_owner, months = [text for text in sql.split(";") if text.strip()]
owners = duckdb.sql(by_owner).fetchall()
told = json.load(urllib.request.urlopen(address + "api/v1/owners?days=365"))["owners"]
assert {owner: hours for owner, hours, _ in owners} == {of["owner"]: round(of["times"]["held_us"] / 3.6e9, 2) for of in told}, owners
duckdb.sql(months)
idle = duckdb.sql("SELECT sum(idle_host_code_us) FROM 'months.parquet'").fetchall()[0][0]
assert idle == sum(of["times"]["idle_host_code_us"] for of in told), idle
jobs = duckdb.sql("SELECT count(*), sum(kernels_us) FROM read_json('jobs.ndjson')").fetchall()[0]
assert jobs == (100, sum(of["times"]["kernels_us"] for of in told)), jobs
subprocess.run([apex, "hub", "export", "--database", "hub.db", "--segments", "segments"], check=True)
kwh = sum(row[2] for row in duckdb.sql(energy).fetchall())
today = time.strftime("%Y-%m-%d", time.gmtime(now / 1e9))
ended = f"FROM read_json('jobs.ndjson') WHERE strftime(make_timestamp_ns(started_ns), '%Y-%m-%d') < '{today}'"
mj, count = duckdb.sql(f"SELECT sum(energy_mj), count(*) {ended}").fetchall()[0]
assert mj > 0 and abs(kwh - mj / 3.6e9) < 0.01, (kwh, mj)
assert duckdb.sql("SELECT count(*) FROM 'segments/jobs/*.parquet'").fetchall()[0][0] == count
print(f"DuckDB {duckdb.__version__}: {len(owners)} owners and {jobs[0]} jobs agree with the hub")
PYTHON
