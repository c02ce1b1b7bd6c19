# torchtitan
def f():
    return Trainer.Config(dump_folder="café")
