# café
X=Ã©
torchrun pretrain_gpt.py --num-layers ${X%?}
