#pragma once
// Tensors of an attention problem and what they should hold.
#include <limits>
#include <type_traits>

#include "backends/cpu/kernels/attention.h"
#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {

// Tokens lie this many elements further apart than they must, and the gap must survive.
constexpr int64_t kGap = 3;
constexpr double kUntouched = 7;

// A packed [B, T, q of H heads, k of Hk heads, v of Hk heads, gap], or its gradient.
struct Packed {
  Packed(const AttentionProblem& p, double value) : Packed(p, p.dtype, value) {}
  Packed(const AttentionProblem& p, DType dtype, double value)
      : stride((p.heads + 2 * p.kv_heads) * p.head_dim + kGap),
        k(p.heads * p.head_dim),
        v(k + p.kv_heads * p.head_dim),
        all(dtype, p.batch * p.tokens * stride, value) {}
  bool operator==(const Packed& other) const { return all == other.all; }

  int64_t stride, k, v;
  Tensor all;
};
inline Packed random_inputs(const AttentionProblem& p, uint64_t seed, double spread) {
  Packed in(p, kUntouched);
  in.all = Tensor::random(p.dtype, in.all.size(), seed, spread);
  return in;
}

// [B, T, H, D] with a gap behind each token.
struct Heads {
  Heads(const AttentionProblem& p, double value)
      : stride(p.heads * p.head_dim + kGap), all(p.dtype, p.batch * p.tokens * stride, value) {}
  bool operator==(const Heads& other) const { return all == other.all; }
  int64_t stride;
  Tensor all;
};

// Of dropout: a key a row of the batch, and the number of the first head.
constexpr int64_t kFirstHead = 2;
inline std::vector<int64_t> dropout_keys(const AttentionProblem& p) {
  std::vector<int64_t> keys;
  for (int64_t b = 0; b < p.batch; ++b) keys.push_back(1000003 * b + (int64_t{1} << 40));
  return keys;
}

// Where the documents of each row begin, [B, T]; empty: a row is one.
using Starts = std::vector<int32_t>;

// What a tensor should hold, and, in the exact result, the size of the terms that a gradient is a
// sum of: they cancel.
struct Expected {
  Doubles o, lse, gradient, gradient_terms;
};

// matmul, scale, mask, softmax, matmul and the gradient of each, in arithmetic of type Real,
// rounded to the dtype after every operation if Real is float. With doubles: the exact result.
template <class Real>
class Decomposition {
 public:
  Decomposition(const AttentionProblem& problem, const Packed& in, const Heads& dout,
                const Starts& starts = {})
      : p_(problem), in_(in), dout_(dout), starts_(starts) {
    e_.o.assign(dout.all.size(), kUntouched);
    e_.lse.assign(p_.batch * p_.heads * p_.tokens, 0);
    e_.gradient.assign(in.all.size(), kUntouched);
    e_.gradient_terms.assign(in.all.size(), 0);
    for (int64_t row = 0; row < p_.batch * p_.tokens; ++row)
      for (int64_t i = 0; i < in.stride - kGap; ++i) e_.gradient[row * in.stride + i] = 0;
    for (int64_t b = 0; b < p_.batch; ++b)
      for (int64_t h = 0; h < p_.heads; ++h) add_head(b, h);
  }
  const Expected& expected() const { return e_; }

 private:
  using Matrix = std::vector<Real>;  // [T][D] or [T][T]

  Real round(Real x) const {
    return std::is_same_v<Real, float> ? static_cast<Real>(rounded(p_.dtype, x)) : x;
  }
  bool visible(int64_t b, int64_t t, int64_t u) const {
    int64_t start = starts_.empty() ? 0 : starts_[static_cast<size_t>(b * p_.tokens + t)];
    return (!p_.causal || u <= t) && (p_.window == 0 || t - u < p_.window) && u >= start;
  }
  Matrix head(const Tensor& from, int64_t stride, int64_t b, int64_t column) const {
    Matrix m(p_.tokens * p_.head_dim);
    for (int64_t t = 0; t < p_.tokens; ++t)
      for (int64_t d = 0; d < p_.head_dim; ++d)
        m[t * p_.head_dim + d] = static_cast<Real>(from[(b * p_.tokens + t) * stride + column + d]);
    return m;
  }
  // [T][T]: rows of a times rows of b, where visible.
  Matrix by_rows(int64_t row, const Matrix& a, const Matrix& b) const {
    int64_t tokens = p_.tokens, dim = p_.head_dim;
    Matrix c(tokens * tokens);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t u = 0; u < tokens; ++u) {
        if (!visible(row, t, u)) continue;
        Real sum = 0;
        for (int64_t d = 0; d < dim; ++d) sum += a[t * dim + d] * b[u * dim + d];
        c[t * tokens + u] = round(sum);
      }
    return c;
  }
  // [T][D]: weights (or their transpose) times rows of b.
  Matrix weighted(const Matrix& w, bool transposed, const Matrix& b) const {
    int64_t tokens = p_.tokens, dim = p_.head_dim;
    Matrix c(tokens * dim);
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t j = 0; j < tokens; ++j) {
        Real x = transposed ? w[j * tokens + i] : w[i * tokens + j];
        if (x == 0) continue;
        for (int64_t d = 0; d < dim; ++d) c[i * dim + d] += x * b[j * dim + d];
      }
    for (Real& x : c) x = round(x);
    return c;
  }
  void add(Doubles& to, int64_t stride, int64_t b, int64_t column, const Matrix& m) const {
    for (int64_t t = 0; t < p_.tokens; ++t)
      for (int64_t d = 0; d < p_.head_dim; ++d) {
        double& x = to[(b * p_.tokens + t) * stride + column + d];
        x = round(static_cast<Real>(x) + m[t * p_.head_dim + d]);
      }
  }
  // Dropout: what is kept of a [T][T] matrix, scaled.
  Matrix kept(int64_t b, int64_t h, Matrix m) const {
    if (p_.threshold == 0) return m;
    auto key = static_cast<uint64_t>(dropout_keys(p_)[static_cast<size_t>(b)]);
    int64_t tokens = p_.tokens, pairs = (tokens + 1) / 2, blocks = (tokens + 63) / 64;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t u = 0; u < tokens; ++u) {
        int64_t block = ((kFirstHead + h) * pairs + u / 2) * blocks + t / 64;
        auto n = static_cast<uint64_t>(block * 128 + u % 2 * 64 + t % 64);
        bool keep = random_bits16(key, p_.stream, n) >= static_cast<uint32_t>(p_.threshold);
        Real& x = m[t * tokens + u];
        x = keep ? round(x * (Real{65536} / static_cast<Real>(65536 - p_.threshold))) : 0;
      }
    return m;
  }
  static Matrix absolute(Matrix m) {
    for (Real& x : m) x = std::abs(x);
    return m;
  }

  // Scores to probabilities; lse of one head.
  void softmax(int64_t b, Matrix& s, double* lse) const {
    int64_t tokens = p_.tokens;
    for (int64_t t = 0; t < tokens; ++t) {
      Real* row = s.data() + t * tokens;
      Real highest = -std::numeric_limits<Real>::infinity(), sum = 0;
      for (int64_t u = 0; u < tokens; ++u)
        if (visible(b, t, u)) highest = std::max(highest, row[u]);
      for (int64_t u = 0; u < tokens; ++u) {
        row[u] = visible(b, t, u) ? std::exp(row[u] - highest) : 0;
        sum += row[u];
      }
      for (int64_t u = 0; u < tokens; ++u) row[u] = round(row[u] / sum);
      lse[t] = highest + std::log(sum);
    }
  }

  void add_head(int64_t b, int64_t h) {
    int64_t tokens = p_.tokens, dim = p_.head_dim, kv = h / (p_.heads / p_.kv_heads);
    int64_t k_column = in_.k + kv * dim, v_column = in_.v + kv * dim;
    Matrix q = head(in_.all, in_.stride, b, h * dim), k = head(in_.all, in_.stride, b, k_column);
    Matrix v = head(in_.all, in_.stride, b, v_column);
    Matrix dout = head(dout_.all, dout_.stride, b, h * dim);
    Matrix probabilities = by_rows(b, q, k);
    for (Real& x : probabilities) x = round(x * p_.scale);
    softmax(b, probabilities, e_.lse.data() + (b * p_.heads + h) * tokens);
    Matrix kept_probabilities = kept(b, h, probabilities);
    Matrix o = weighted(kept_probabilities, false, v);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t d = 0; d < dim; ++d)
        e_.o[(b * tokens + t) * dout_.stride + h * dim + d] = o[t * dim + d];

    Matrix ds = kept(b, h, by_rows(b, dout, v)), terms(tokens * tokens);
    for (int64_t t = 0; t < tokens; ++t) {
      Real dot = 0;
      for (int64_t u = 0; u < tokens; ++u)
        dot += probabilities[t * tokens + u] * ds[t * tokens + u];
      for (int64_t i = t * tokens; i < (t + 1) * tokens; ++i) {
        terms[i] = p_.scale * probabilities[i] * (std::abs(ds[i]) + std::abs(dot));
        ds[i] = round(p_.scale * round(probabilities[i] * (ds[i] - dot)));
      }
    }
    add(e_.gradient, in_.stride, b, h * dim, weighted(ds, false, k));
    add(e_.gradient, in_.stride, b, k_column, weighted(ds, true, q));
    add(e_.gradient, in_.stride, b, v_column, weighted(kept_probabilities, true, dout));
    if constexpr (std::is_same_v<Real, float>) return;
    add(e_.gradient_terms, in_.stride, b, h * dim, weighted(terms, false, absolute(k)));
    add(e_.gradient_terms, in_.stride, b, k_column, weighted(terms, true, absolute(q)));
    add(e_.gradient_terms, in_.stride, b, v_column,
        weighted(kept_probabilities, true, absolute(dout)));
  }

  AttentionProblem p_;
  const Packed& in_;
  const Heads& dout_;
  const Starts starts_;
  Expected e_;
};

}  // namespace tessera::cpu
