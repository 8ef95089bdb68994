"""The job of ./quickstart for the scripts here."""
import shlex
from pathlib import Path


def quickstart_options(run):
    """The options of the job in ./quickstart, but for what it writes."""
    text = (Path(__file__).resolve().parent.parent / "quickstart").read_text()
    block = text.split('"$tessera" train \\\n', 1)[1].split("\n\n", 1)[0]
    words = shlex.split(block.replace("\\\n", " ").replace("$run", run))
    options = dict(zip(words[::2], words[1::2]))
    options["--lr_decay_iters"] = options["--max_steps"]
    for name in ("--checkpoint_dir", "--compare_baselines", "--metrics_file"):
        del options[name]
    return options | {"--save_ckpt": "0", "--run_validation": "0", "--peak_tflops_per_gpu": "1"}
