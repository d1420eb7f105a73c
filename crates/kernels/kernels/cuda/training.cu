// What a model needs to learn, beside its layers: the rows of an embedding, their gradient, and AdamW.
//
// Each output has one writer, and sums have one order: results are the same in each run.
#include "numbers.cuh"

namespace training {
using namespace numbers;

constexpr int THREADS = 128;
// Rows of the vocabulary that a block of the embedding's gradient adds up, for a column of each thread.
constexpr int ROWS = 16;

// A block for each token copies its row of the table, or writes zeros if the vocabulary does not have it.
template <typename T>
__device__ void embed(const T* table, const unsigned* ids, T* output, int tokens, int vocabulary, int dim) {
  for (int token = blockIdx.x; token < tokens; token += gridDim.x) {
    unsigned id = ids[token];
    const T* row = table + static_cast<long long>(id) * dim;
    T* to = output + static_cast<long long>(token) * dim;
    for (int column = threadIdx.x; column < dim; column += THREADS)
      to[column] = id < vocabulary ? row[column] : narrow<T>(0.0f);
  }
}

// Blocks along x take ROWS rows of the vocabulary each, along y THREADS columns. A block looks at all tokens, THREADS at a time:
// it lists those that have one of its rows, in the order of tokens, and then each thread adds up its column.
template <typename T>
__device__ void embed_gradient(const unsigned* ids, const T* output_gradient, T* gradient, int tokens, int vocabulary, int dim) {
  __shared__ float sums[ROWS][THREADS];
  __shared__ int listed[THREADS];
  __shared__ int votes[THREADS / 32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.y * THREADS + threadIdx.x;
  unsigned first_row = blockIdx.x * ROWS;
  for (int r = 0; r < ROWS; ++r) sums[r][threadIdx.x] = 0.0f;  // none but this thread uses the column
  for (int start = 0; start < tokens; start += THREADS) {
    int token = start + threadIdx.x;
    unsigned row = token < tokens ? ids[token] - first_row : ROWS;  // large if the id is below the first row
    unsigned in_warp = __ballot_sync(0xffffffff, row < ROWS);
    if (lane == 0) votes[warp] = __popc(in_warp);
    __syncthreads();
    int before = __popc(in_warp & ((1u << lane) - 1)), all = 0;
    for (int w = 0; w < THREADS / 32; ++w) {
      if (w < warp) before += votes[w];
      all += votes[w];
    }
    if (row < ROWS) listed[before] = threadIdx.x * ROWS + row;
    __syncthreads();
    if (column >= dim) continue;
    for (int i = 0; i < all; ++i) {
      long long its_token = start + listed[i] / ROWS;
      sums[listed[i] % ROWS][threadIdx.x] += static_cast<float>(output_gradient[its_token * dim + column]);
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    if (column < dim && first_row + r < vocabulary)
      gradient[static_cast<long long>(first_row + r) * dim + column] = narrow<T>(sums[r][threadIdx.x]);
  }
}

// The same bytes as `Update` in src/training/adamw.rs.
struct Update {
  float gradient_scale;
  float keep_first, take_first;    // of the mean of gradients, and of the new one
  float keep_second, take_second;  // the same for squares
  float keep;                      // 1 - rate * decay
  float rate;                      // corrected for the mean of gradients, which began as 0
  float second_correction;         // what the mean of squares is divided by, for the same reason
  float epsilon;
};

template <typename T>
__device__ void adamw(T* weights, const T* gradient, float* master, float* first, float* second, const Update& u, long long n) {
  long long step = static_cast<long long>(gridDim.x) * THREADS;
  for (long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x; i < n; i += step) {
    float g = u.gradient_scale * static_cast<float>(gradient[i]);
    float m = u.keep_first * first[i] + u.take_first * g;
    float v = u.keep_second * second[i] + u.take_second * g * g;
    float weight = u.keep * master[i] - u.rate * m / (sqrtf(v / u.second_correction) + u.epsilon);
    first[i] = m, second[i] = v, master[i] = weight;
    weights[i] = narrow<T>(weight);
  }
}

}  // namespace training

#define TRAINING(TYPE, NAME)                                                                                             \
  extern "C" __global__ void __launch_bounds__(training::THREADS)                                                        \
      embed_##NAME(const TYPE* table, const unsigned* ids, TYPE* output, int tokens, int vocabulary, int dim) {          \
    training::embed<TYPE>(table, ids, output, tokens, vocabulary, dim);                                                  \
  }                                                                                                                      \
  extern "C" __global__ void __launch_bounds__(training::THREADS) embed_gradient_##NAME(                                 \
      const unsigned* ids, const TYPE* output_gradient, TYPE* gradient, int tokens, int vocabulary, int dim) {           \
    training::embed_gradient<TYPE>(ids, output_gradient, gradient, tokens, vocabulary, dim);                             \
  }                                                                                                                      \
  extern "C" __global__ void __launch_bounds__(training::THREADS)                                                        \
      adamw_##NAME(TYPE* weights, const TYPE* gradient, float* master, float* first, float* second,                      \
                   const training::Update update, long long n) {                                                         \
    training::adamw<TYPE>(weights, gradient, master, first, second, update, n);                                          \
  }
TRAINING(__nv_bfloat16, bf16)
TRAINING(__half, f16)
