"""The quickstart and PyTorch's golden of it are one job, and are compared as the script says."""

import hashlib
import importlib.util
import json
import math
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


prepare = load(ROOT / "tools/oracle/prepare_quickstart.py")


GOLDENS = [ROOT / golden for _, golden in prepare.GOLDENS.values()]


class GoldenTest(unittest.TestCase):
    short = False
    learned = 0.5  # what is left of the first loss, at most

    def setUp(self):
        self.golden = json.loads(GOLDENS[self.short].read_text())
        self.options = prepare.quickstart_options((ROOT / "quickstart").read_text(), self.short)

    def test_it_is_the_job_of_the_script(self):
        self.assertEqual(self.golden["job"], prepare.job_of(self.options))

    def test_pytorch_was_told_the_same(self):
        settings, options = self.golden["settings"], self.options
        for ours, theirs in (("max_steps", "steps"), ("train_batch_size", "batch_size"),
                             ("max_context_width", "context"), ("beta2", "beta2"),
                             ("weight_decay", "weight_decay"), ("grad_clip", "grad_clip")):
            self.assertEqual(float(options[ours]), settings[theirs], ours)
        # Not in the script: tessera's defaults.
        self.assertEqual((settings["beta1"], settings["eps"]), (0.9, 1e-8))
        self.assertEqual(settings["precision"], "bf16" if options["bf16"] == "1" else "f32")
        self.assertEqual(self.golden["learning_rates"], prepare.learning_rates(options))
        config = json.dumps(prepare.model_config(options)).encode()
        self.assertEqual(self.golden["sha256"]["config"], hashlib.sha256(config).hexdigest())

    def test_it_is_whole(self):
        steps = int(self.options["max_steps"])
        for curve in ("losses", "grad_norms", "learning_rates"):
            self.assertEqual(len(self.golden[curve]), steps, curve)
            self.assertTrue(all(map(math.isfinite, self.golden[curve])), curve)
        validation = self.golden["validation"]
        context = int(self.options["max_context_width"])
        self.assertEqual(validation["windows"], math.ceil(validation["tokens"] / context))
        # The script validates on all windows too.
        rows = int(self.options["validation_batches"]) * int(self.options["val_batch_size"])
        self.assertLessEqual(validation["windows"], rows)
        self.assertLess(validation["loss"], self.golden["losses"][0] * self.learned)


class ShortGoldenTest(GoldenTest):
    short = True
    learned = 0.6


class ComparisonTest(unittest.TestCase):
    def compare(self, *lines, golden=GOLDENS[0]):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as metrics:
            metrics.write("".join(line + "\n" for line in lines))
            metrics.flush()
            return subprocess.run([ROOT / "tools/oracle/compare_quickstart", metrics.name, golden],
                                  capture_output=True, text=True)

    def test_the_last_validation_loss_counts(self):
        loss = json.loads(GOLDENS[0].read_text())["validation"]["loss"]
        for ratio, said, far in ((1, "+0.00 %", False), (0.985, "-1.50 %", False),
                                 (1.021, "+2.10 %", True), (0.97, "-3.00 %", True)):
            result = self.compare('{"batch":1,"validation_loss":9.5,"validation_perplexity":13359}',
                                  json.dumps({"batch": 2, "validation_loss": loss * ratio}),
                                  '{"batch":3,"loss":1.5}')
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"PyTorch on the same weights, tokens and steps {loss:.4f}: {said}",
                          result.stdout)
            self.assertEqual("MORE THAN 2 %" in result.stdout, far, result.stdout)

    def test_it_is_set_beside_the_curve_given(self):
        loss = json.loads(GOLDENS[1].read_text())["validation"]["loss"]
        result = self.compare(json.dumps({"batch": 2, "validation_loss": loss}), golden=GOLDENS[1])
        self.assertIn(f"steps {loss:.4f}: +0.00 %", result.stdout)

    def test_no_loss_is_an_error(self):
        for lines in ([], ['{"batch":3,"loss":1.5}'], ['{"batch":3,"validation_loss":null}']):
            result = self.compare(*lines)
            self.assertEqual(result.returncode, 1)
            self.assertIn("no validation loss in", result.stderr)


if __name__ == "__main__":
    unittest.main()
