"""Lightning has handlers of signals of its own, and turns an interrupt into its own way of stopping."""

import signal

from tests.unit.test_process import started

FIT = """
    import torch
    from lightning.pytorch import LightningModule, Trainer
    class Endless(LightningModule):
        automatic_optimization = False
        def configure_optimizers(self):
            return torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
        def training_step(self, batch, batch_idx):
            begun()
            for _ in range(6000):
                time.sleep(0.01)
    trainer = Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False)
    try:
        trainer.fit(Endless(), train_dataloaders=range(1))
    finally:
        print("cleaned up")
    print("went on")
"""


def test_ctrl_c_inside_of_lightnings_loop_ends_the_process_with_one_line():
    """SIGTERM there: `test_resume.py` stops a whole run."""
    process = started(FIT)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=50)
    assert (process.returncode, out) == (130, "cleaned up\n")
    assert err.endswith("oneshot_fl: interrupted; the same command resumes\n")
    assert "Traceback" not in err
