#!/usr/bin/env bash
# Opens exports in programs that others wrote, and compares what they add up to with the manifest.
#
#   deploy/dev/open-exports.sh [--data-dir DIR] [--period 2026-05]
#
# CSV and Parquet are added up by DuckDB, which is installed from PyPI into a temporary folder. XLSX is
# opened by LibreOffice (soffice), which must be there: apt-get install libreoffice-calc-nogui.
# Exits 1 if a sum or a number of rows differs, and 2 if a program is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=() period=2026-05
while [ $# -gt 0 ]; do
	case $1 in
	--data-dir) dir=(--data-dir "$2"); shift 2 ;;
	--period) period=$2; shift 2 ;;
	*) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
	esac
done
command -v soffice >/dev/null || { echo 'soffice not found: install libreoffice-calc-nogui'; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/python" && "$work/python/bin/pip" install -q 'duckdb>=1.4' ||
	{ echo 'duckdb cannot be installed: this needs python3-venv and PyPI'; exit 2; }
for format in csv parquet xlsx; do
	bin/quartermaster costs export "${dir[@]}" --period "$period" --out "$work/export.$format" >"$work/said"
done
# Each sheet becomes a file: fields in double quotes, numbers as they are stored, not as they are shown.
soffice "-env:UserInstallation=file://$work/profile" --headless \
	--convert-to 'csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false,false,false,false,-1' --outdir "$work" \
	"$work/export.xlsx" >"$work/said" 2>&1 || { cat "$work/said"; exit 1; }
"$work/python/bin/python" - "$work" <<'PYTHON'
import csv, glob, json, sys
from decimal import Decimal

import duckdb

work = sys.argv[1]
costs = ("BilledCost", "EffectiveCost")
columns = ", ".join(f"'{c}': 'DECIMAL(38,18)'" for c in costs)
with open(f"{work}/export.csv.manifest.json") as f:
    want = {t["currency"]: (t["rows"], Decimal(t["billed"]), Decimal(t["effective"])) for t in json.load(f)["control_totals"]}


def duck(source):
    query = f"select BillingCurrency, count(*), sum(BilledCost), sum(EffectiveCost) from {source} group by 1"
    return {r[0]: tuple(r[1:]) for r in duckdb.sql(query).fetchall()}


def sheets():
    sums = {}
    for name in sorted(glob.glob(f"{work}/export-rows*.csv")):
        with open(name, newline="") as f:
            for row in csv.DictReader(f):
                n, *amounts = sums.get(row["BillingCurrency"], (0, Decimal(0), Decimal(0)))
                # The exact text is beside a number of more than 15 digits.
                got = [Decimal(row[c + "_exact"] or row[c] or 0) for c in costs]
                sums[row["BillingCurrency"]] = (n + 1, *(a + b for a, b in zip(amounts, got)))
    return sums


failed = False
for program, got in (
    (f"CSV     DuckDB {duckdb.__version__}", duck(f"read_csv('{work}/export.csv', types={{{columns}}})")),
    (f"Parquet DuckDB {duckdb.__version__}", duck(f"'{work}/export.parquet'")),
    ("XLSX    LibreOffice", sheets()),
):
    for currency in sorted(set(want) | set(got)):
        same = got.get(currency) == want.get(currency)
        failed |= not same
        rows, billed, effective = got.get(currency, (0, 0, 0))
        print(f"{program:22} {currency} {rows:>9,} rows  billed {billed:,.18f}  effective {effective:,.18f}  {'equal' if same else 'DIFFERENT'}")
sys.exit(failed)
PYTHON
