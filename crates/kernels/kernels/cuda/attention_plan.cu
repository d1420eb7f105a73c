// The plan of tiles of packed sequences, for the Hopper forms: see attention_tiles.cuh.
#include "attention_tiles.cuh"

extern "C" __global__ void __launch_bounds__(attention::BUCKETS)
    attention_plan(const int2* starts, attention::PlannedTile* plan, const attention::Problem problem, int sequences, int mask,
                   int of_keys, int rows, int others, int blocks_of, int shift) {
  attention::plan(starts, sequences, plan, problem, mask, of_keys != 0, rows, others, blocks_of, shift);
}
