import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tools/lib")]

import bench  # noqa: E402
import compare  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402


def row(value, baseline_value=None, target="", benchmark="add", name="a+b"):
    ratio = value / baseline_value if baseline_value else None
    return {"benchmark": benchmark, "name": name, "value": value, "unit": "ns", "baseline": "plain" if baseline_value else "",
            "baseline_value": baseline_value, "ratio": ratio, "target": target, "met": None, "canary_ms": None}


def document(date, kind, *rows, **more):
    return {"schema": results.SCHEMA, "date": date, "machine": {"kind": kind}, "rows": list(rows), **more}


class Saved(unittest.TestCase):
    def test_the_page_has_the_table_of_the_saved_results(self):
        page = report.PAGE.read_text()
        made = report.table(results.all_saved(), set(bench.benchmarks()))
        self.assertEqual(report.with_table(page, made), page, "run tools/bench --report")

    def test_files_are_named_after_date_and_kind_of_machine(self):
        for path in results.FOLDER.glob("*.json"):
            saved = results.read(path)
            self.assertTrue(path.name.startswith(f"{saved['date'][:10]}-{saved['machine']['kind']}"), path.name)

    def test_files_name_no_host_and_no_path_of_a_machine(self):
        for path in results.FOLDER.glob("*.json"):
            self.assertLessEqual(results.read(path)["machine"].keys(), {"kind", "cores", "model", "gpu", "linux", "torch"}, path.name)
            self.assertIsNone(re.search(r"/(home|root|tmp|work|mnt|opt|usr)/", path.read_text()), path.name)

    def test_rows_have_the_fields_of_a_row(self):
        for path in results.FOLDER.glob("*.json"):
            for saved in results.read(path)["rows"]:
                self.assertLessEqual(saved.keys() - row(1).keys(), {"note", "retired"}, path.name)
                self.assertLessEqual(row(1).keys() - saved.keys(), {"canary_ms"}, path.name)


class Document(unittest.TestCase):
    def test_text_is_read_back(self):
        written = document("2026-01-02T03:04Z", "h100", row(1.5), row(2.5))
        path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "x.json")
        path.write_text(results.text_of(written))
        self.assertEqual(results.read(path), written)
        self.assertEqual(results.free_path(written, path.parent).name, "2026-01-02-h100.json")
        (path.parent / "2026-01-02-h100.json").touch()
        self.assertEqual(results.free_path(written, path.parent).name, "2026-01-02-h100-2.json")

    def test_kinds_of_machines(self):
        self.assertEqual(results.kind_of(2, "AMD EPYC 9575F", []), "epyc-2-cores")
        self.assertEqual(results.kind_of(16, "Intel(R) Xeon(R)", ["NVIDIA H100 80GB HBM3"]), "h100")
        self.assertEqual(results.kind_of(16, "Intel(R) Xeon(R)", ["NVIDIA H200", "NVIDIA H200"]), "2-h200")


class Table(unittest.TestCase):
    def lines(self, *documents):
        return report.table(list(documents), {"add"}).splitlines()[2:]

    def test_has_the_latest_result_of_each_kind(self):
        old, new = (document(f"2026-01-0{day}", "h100", row(day, target="value <= 3")) for day in (1, 2))
        other = document("2026-01-01", "h200", row(3, target="value <= 3"))
        self.assertEqual(self.lines(new, old, other), ["| `add`: a+b |  | value <= 3 | 2 ns | 3 ns |"])

    def test_a_median_that_misses_is_bold(self):
        runs = [row(value, 10, "ratio <= 0.5") for value in (8, 6)]
        self.assertEqual(self.lines(document("2026-01-01", "h100", *runs)), ["| `add`: a+b | plain | ratio <= 0.5 | **7 ns, 0.70x** |"])

    def test_leaves_out_smoke_runs_retired_rows_and_other_benchmarks(self):
        has_target = row(1, target="value <= 3")
        left_out = document("2026-01-01", "h100", has_target | {"retired": True}, has_target | {"benchmark": "gone"})
        self.assertEqual(self.lines(document("2026-01-01", "h100", has_target, smoke=True), left_out), [])


class Compare(unittest.TestCase):
    def only(self, old, new):
        found, = compare.changes([document("", "", each) for each in old], [document("", "", each) for each in new])
        return found

    def test_medians_further_apart_than_the_runs_exceed_the_spread(self):
        found = self.only([row(100), row(102), row(104)], [row(200), row(204)])
        self.assertAlmostEqual(found.ratio, 202 / 102)
        self.assertIs(found.exceeds_spread, True)

    def test_medians_nearer_than_the_runs_do_not(self):
        self.assertIs(self.only([row(100), row(110)], [row(107), row(113)]).exceeds_spread, False)

    def test_a_machine_that_became_slower_is_no_change(self):
        self.assertIs(self.only([row(100, 200), row(102, 200)], [row(150, 300), row(153, 300)]).exceeds_spread, False)

    def test_one_run_a_side_has_no_spread(self):
        self.assertIsNone(self.only([row(100)], [row(200)]).exceeds_spread)

    def test_ratios_serve_where_a_side_has_no_values(self):
        found = self.only([row(100, 200) | {"value": None}], [row(120, 200)])
        self.assertAlmostEqual(found.ratio, 1.2)

    def test_rows_of_one_side_are_listed(self):
        text = compare.as_text(compare.changes([document("", "", row(1, name="gone"))], [document("", "", row(1, name="fresh"))]))
        self.assertIn("only in OLD: add: gone", text)
        self.assertIn("only in NEW: add: fresh", text)


if __name__ == "__main__":
    unittest.main()
