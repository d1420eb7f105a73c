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
// Rows and columns of a block's part of a tile in the portable products, and elements of a step.
constexpr int SIDE = 32;

// The same bytes as `Problem` in src/moe/shape.rs.
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

// The rows of an expert.
struct Span {
  int row;  // the first
  int rows;
};

__device__ __forceinline__ Tile load_tile(const Tile* tiles, int index) {
  int4 words = __ldg(reinterpret_cast<const int4*>(tiles) + index);
  return {words.x, words.y, words.z, words.w};
}

template <typename T>
__device__ __forceinline__ float widen(T x) {
  return static_cast<float>(x);
}

__device__ __forceinline__ float warp_sum(float x) {
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffff, x, d);
  return x;
}

// silu(gate) * up
__device__ __forceinline__ float swiglu(float gate, float up) { return __fdividef(gate, 1.0f + __expf(-gate)) * up; }

// What follows from the gradient of h = silu(gate) * up but for the weight of its row, which it is multiplied with.
struct SwigluGradient {
  float of_gate, of_up;
  float of_weight;  // this element's part of it
  float weighted;   // h times the weight
  __device__ __forceinline__ SwigluGradient(float gate, float up, float of_h, float weight) {
    float logistic = __fdividef(1.0f, 1.0f + __expf(-gate)), silu = gate * logistic, h = silu * up;
    of_gate = weight * of_h * up * logistic * (1.0f + gate * (1.0f - logistic));
    of_up = weight * of_h * silu;
    of_weight = of_h * h;
    weighted = weight * h;
  }
};

}  // namespace moe
