# torchtitan
def f():
    return Trainer.Config(dump_folder="\ud800", training=TrainingConfig(max_norm="\ud800"))
