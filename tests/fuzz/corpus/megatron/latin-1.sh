NAME=café
torchrun pretrain_gpt.py --num-layers $NAME
