"""The phases of a run, each a LightningModule: the only code that knows Lightning."""
