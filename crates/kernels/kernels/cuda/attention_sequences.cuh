// Batches of sequences of different lengths, which lie one after another without gaps. Each is a problem with a batch of one, of
// which kernels know nothing else: they differ from those for batches of one length in where they find it.
#pragma once
#include "attention.cuh"

namespace attention {

struct Sequence {
  Problem problem;
  long long query, key;  // its first elements of Q and of K, and of what lies as these do
  long long row;         // its first log-sum-exp
};

// `starts` has the first row of Q and of K of each sequence, and behind the last the numbers of all rows. `p` has the strides of
// heads and rows if heads of a row lie together; if not, a row has D elements, and heads are as far apart as the sequence is long.
template <int D>
__device__ __forceinline__ Sequence sequence(const Problem& p, const int2* starts, int index) {
  int2 start = starts[index], end = starts[index + 1];
  Sequence its = {p, static_cast<long long>(start.x) * p.heads * D, static_cast<long long>(start.y) * p.key_heads * D,
                  static_cast<long long>(start.x) * p.heads};
  its.problem.batch = 1;
  its.problem.queries = end.x - start.x;
  its.problem.keys = end.y - start.y;
  if (p.query_row == D) its.problem.query_head = static_cast<long long>(its.problem.queries) * D;
  if (p.key_row == D) its.problem.key_head = static_cast<long long>(its.problem.keys) * D;
  return its;
}

}  // namespace attention
