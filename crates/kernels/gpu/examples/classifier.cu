// The forward pass of examples/classifier.rs: a belief over classes for each observation. scripts/device-code.sh compiles it.
//
// One warp for each observation, lane k for class k (at most 32). A class is a Gaussian of independent dimensions; `scores`
// are log-probabilities of the observation with each class, up to what all share. The belief q = softmax(v) descends the
// variational free energy F = sum q (ln q - score): each step moves v by a rate towards the scores.

__device__ float warp_sum(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

__device__ float warp_max(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}

// observations [n, dimensions]; means and precisions (inverse variances) [classes, dimensions]; prior [classes], logarithms;
// beliefs [n, classes]; energies [n, steps]: F before each step.
extern "C" __global__ void infer(unsigned n, unsigned classes, unsigned dimensions, unsigned steps, float rate,
                                 const float* observations, const float* means, const float* precisions,
                                 const float* prior, float* beliefs, float* energies) {
    unsigned at = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (at >= n) return;
    bool is_class = lane < classes;
    float score = -1e30f;
    if (is_class) {
        score = prior[lane];
        for (unsigned d = 0; d < dimensions; d++) {
            float precision = precisions[lane * dimensions + d];
            float off = observations[at * dimensions + d] - means[lane * dimensions + d];
            score += 0.5f * (logf(precision) - precision * off * off);
        }
    }
    // Begin with a belief that knows nothing.
    float v = is_class ? 0.0f : -1e30f;
    float q = 0.0f;
    for (unsigned step = 0; step <= steps; step++) {
        float most = warp_max(v);
        float e = is_class ? expf(v - most) : 0.0f;
        float sum = warp_sum(e);
        q = e / sum;
        float log_q = v - most - logf(sum);
        if (step == steps) break;
        float energy = warp_sum(is_class && q > 0.0f ? q * (log_q - score) : 0.0f);
        if (lane == 0) energies[at * steps + step] = energy;
        // Towards the scores, where F is least; what is added to all of v changes nothing.
        if (is_class) v = log_q + rate * (score - log_q);
    }
    if (is_class) beliefs[at * classes + lane] = q;
}
