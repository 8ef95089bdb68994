"""The job of ./quickstart for the scripts here that run it on several ranks."""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools/oracle"))
import prepare_quickstart as oracle  # noqa: E402

# What it writes.
LEFT_OUT = ("checkpoint_dir", "compare_baselines", "metrics_file")


def job_options(run):
    """Option -> word: as ./quickstart gives them, with the texts in `run`, but for checkpoints and output."""
    options = oracle.quickstart_options((ROOT / "quickstart").read_text())
    words = {f"--{name}": word.replace("$run", run) for name, word in options.items()
             if name not in LEFT_OUT}
    return words | {"--lr_decay_iters": words["--max_steps"], "--save_ckpt": "0",
                    "--run_validation": "0", "--peak_tflops_per_gpu": "1"}
