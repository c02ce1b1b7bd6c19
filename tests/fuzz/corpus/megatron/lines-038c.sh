étorchrun .py --num-layers ${é
torchrun pretraingpX}