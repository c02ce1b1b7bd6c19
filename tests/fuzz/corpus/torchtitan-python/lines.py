def b()
 return r(training=r(num_tokens_per_microbatch_per_dp_rank=2
1))