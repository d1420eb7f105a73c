// What all forms of a mixture of experts have in common: the problem, the plan of a call, and the gate's activation.
//
//     y_t = sum over the chosen experts e of token t:  w_te * Down_e (silu(Gate_e x_t) * Up_e x_t)
//
// Routing sorts what tokens chose by expert. A *row* is one choice of one token; rows of an expert are contiguous, in the order
// of tokens, so that the products of an expert are products of matrices. Products walk over *tiles*: up to TILE_ROWS rows of one
// expert.
#pragma once
#include "numbers.cuh"

namespace moe {
using namespace numbers;

constexpr int TILE_ROWS = 128;
// Tokens of a chunk: the choices of each chunk are counted and placed by one block of threads.
constexpr int CHUNK = 64;

// The same bytes as `Problem` in src/moe/problem.rs.
struct Problem {
  int tokens, experts, top_k;
  int dim;     // of a token
  int hidden;  // of an expert
  int chunks;  // of tokens
  int sigmoid, renormalise;
};

// Up to TILE_ROWS rows of one expert. Entry 0 of a list of tiles holds their number instead, in `row`.
struct Tile {
  int row;  // the first
  int rows;
  int expert;
  int unused;
};

__device__ __forceinline__ Tile load_tile(const Tile* tiles, int index) {
  int4 words = __ldg(reinterpret_cast<const int4*>(tiles) + index);
  return {words.x, words.y, words.z, words.w};
}

// silu(gate) * up
__device__ __forceinline__ float swiglu(float gate, float up) { return __fdividef(gate, 1.0f + __expf(-gate)) * up; }

}  // namespace moe
