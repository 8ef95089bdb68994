#include "tests/backends/cpu/composite_cases.h"

#include <tuple>

#include "ops/composite/adamw.h"
#include "ops/composite/add_bias.h"
#include "ops/composite/attention.h"
#include "ops/composite/cache_write.h"
#include "ops/composite/cross_entropy.h"
#include "ops/composite/dropout.h"
#include "ops/composite/embedding.h"
#include "ops/composite/gelu.h"
#include "ops/composite/layer_norm.h"
#include "ops/composite/linear.h"
#include "ops/composite/lion.h"
#include "ops/composite/rms_norm.h"
#include "ops/composite/rope.h"
#include "ops/composite/scale.h"
#include "ops/composite/sgd.h"
#include "ops/composite/sum_n.h"
#include "ops/composite/sum_squares.h"
#include "ops/composite/swiglu.h"
#include "ops/composite/vocabulary_parallel.h"

namespace tessera {
namespace {

// Of two operands that are trained, of a frozen matrix, of constants before a trained matrix; added
// to a sum.
constexpr HeadGradients kHeadGradients[] = {
    {true, true}, {true, false}, {false, true}, {true, true, true}, {false, true, true}};
std::string name_of(HeadGradients wanted) {
  return cat(wanted.adds ? " add" : "", wanted.count() == 2 ? "" : wanted.dx ? " dx" : " dw");
}

// Targets below 0, among the columns, in the padding and behind it.
void add_log_sum_exp(std::vector<Case>& c) {
  for (auto [rows, width, classes, valid] :
       {std::tuple{1, 3, 2, 1}, {13, 33, 77, 77}, {530, 20, 100, 61}, {9, 17, 40, 0}}) {
    Case forward{.label = cat("linear_log_sum_exp ", valid, " of ", classes),
                 .op = make<LinearLogSumExp>(),
                 .inputs = {t({rows, width}), t({classes, width}), ids({rows}), ids({})},
                 .ids = 2 * classes,
                 .ignores = true,
                 .valid = valid};
    Case backward = forward;
    for (int i = 0; i < 3; ++i) backward.inputs.push_back(w({rows}));
    // Minus infinity has no error to compare: LinearLogSumExp.PartWithoutColumns.
    if (valid > 0) c.push_back(forward);
    for (HeadGradients wanted : kHeadGradients) {
      backward.label = cat("linear_log_sum_exp_backward ", valid, " of ", classes, name_of(wanted));
      backward.op = make<LinearLogSumExpBackward>(wanted);
      c.push_back(backward);
      if (wanted.adds) c.back().inputs.push_back(w({classes, width}));
    }
  }
}

// The dense families' own: layer_norm, biases and gelu.
void add_dense(std::vector<Case>& c, int64_t rows, int64_t width) {
  std::string size = cat(rows, "x", width);
  TensorType x = t({rows, width}), row = t({width});
  c.push_back({cat("layer_norm ", size), make<LayerNorm>(1e-5, true), {x, row, row}});
  c.push_back({cat("layer_norm no bias ", size), make<LayerNorm>(1e-5, false), {x, row}});
  if (width > 1) {  // dx of one element is the difference of two equal numbers: nothing to measure
    c.push_back({cat("layer_norm_backward ", size),
                 make<LayerNormBackward>(),
                 {x, row, w({rows}), w({rows}), x}});
    c.push_back({cat("layer_norm_backward_add ", size),
                 make<LayerNormBackward>(true),
                 {x, row, w({rows}), w({rows}), x, x}});
  }
  c.push_back({cat("add_bias ", size), make<AddBias>(), {x, row}});
  c.push_back({cat("scale ", size), make<Scale>(0.3), {x}});
  c.push_back({cat("add_bias_backward ", size), make<AddBiasBackward>(), {x}});
  for (GeluKind kind : {GeluKind::kExact, GeluKind::kTanh}) {
    c.push_back({cat("gelu ", name(kind), " ", size), make<Gelu>(kind), {x}});
    c.push_back({cat("gelu_backward ", name(kind), " ", size), make<GeluBackward>(kind), {x, x}});
  }
}

// Whole rows, some tokens of them and some columns of them.
void add_dropout(std::vector<Case>& c) {
  for (auto [label, shape, part] : {std::tuple{"whole", Shape{3, 11, 130}, TensorPart{}},
                                    {"tokens", Shape{2, 5, 33}, TensorPart{1, 20}},
                                    {"columns", Shape{2, 3, 150}, TensorPart{2, 400}},
                                    {"numbers", Shape{70}, TensorPart{}}}) {
    Case dropout{.label = cat("dropout ", label),
                 .op = make<Dropout>(0.3, "noise", part),
                 .inputs = {t(shape), keys(shape[0])},
                 .valid = 7};
    if (!part.whole()) dropout.inputs.push_back(ids({}));
    c.push_back(dropout);
  }
  for (auto [length, heads, kv, size, window] :
       {std::tuple{3, 1, 1, 4, 0}, {17, 4, 2, 20, 0}, {150, 3, 1, 32, 99}}) {
    AttentionMask mask{true, window};
    AttentionDropout dropout{0.3, "noise", length == 17};
    TensorType q = t({2, length, heads, size}), k = t({2, length, kv, size});
    Case forward{.label = cat("attention dropout T=", length),
                 .op = make<Attention>(0.4, mask, dropout),
                 .inputs = {q, k, k, keys(2)},
                 .valid = 7};
    Case backward{.label = cat("attention_backward dropout T=", length),
                  .op = make<AttentionBackward>(0.4, mask, dropout),
                  .inputs = {q, k, k, q, w({2, heads, length}), q, keys(2)},
                  .valid = 7};
    for (Case* each : {&forward, &backward}) {
      if (dropout.part) each->inputs.push_back(ids({}));
      c.push_back(*each);
    }
  }
}

// Few queries, blocks of them, blocks that do not begin at a multiple of 64; windows that begin in
// front of the cache and inside it. Sequences in any rows of the caches, at places of their own.
void add_cached(std::vector<Case>& c) {
  struct Cached {
    int64_t n, capacity, heads, kv, size, window, rows;
    std::vector<double> start, row;
  };
  for (const Cached& s :
       {Cached{1, 1, 1, 1, 4, 0, 1, {0}, {0}}, Cached{1, 130, 6, 2, 20, 0, 2, {90, 90}, {0, 1}},
        Cached{1, 256, 4, 1, 33, 70, 3, {200, 0, 63}, {2, 0, 1}},
        Cached{1, 90, 2, 1, 16, 0, 9, {5, 89, 0, 64, 7}, {8, 1, 3, 0, 4}},
        Cached{3, 70, 4, 4, 5, 9, 4, {62, 1}, {3, 1}},
        Cached{64, 64, 2, 1, 32, 0, 2, {0, 0}, {1, 0}},
        Cached{70, 140, 3, 1, 32, 50, 3, {64, 3}, {1, 2}},
        Cached{17, 145, 4, 2, 16, 0, 2, {128}, {1}},
        Cached{20, 60, 4, 2, 16, 0, 2, {37, 0}, {1, 0}}}) {
    int64_t batch = std::ssize(s.start);
    TensorType q = t({batch, s.n, s.heads, s.size}), cache = t({s.rows, s.capacity, s.kv, s.size});
    std::string name = cat(s.n, " x ", batch, " from ", s.start[0]);
    c.push_back({.label = cat("cached_attention ", name),
                 .op = make<CachedAttention>(0.4, s.window),
                 .inputs = {q, cache, cache, ids({batch}), ids({batch})},
                 .given = {{3, s.start}, {4, s.row}}});
    c.push_back({.label = cat("cache_write ", name),
                 .op = make<CacheWrite>(),
                 .inputs = {cache, t({batch, s.n, s.kv, s.size}), ids({batch}), ids({batch})},
                 .given = {{2, s.start}, {3, s.row}}});
    c.push_back({.label = cat("rope_at ", name),
                 .op = make<RopeAt>(RotaryAngles({1, 0.3}, s.n == 3 ? 1.3 : 1), s.capacity),
                 .inputs = {q, ids({batch})},
                 .given = {{1, s.start}}});
  }
}

// Two rows of documents, one of them long.
void add_documents(std::vector<Case>& c) {
  for (auto [length, heads, kv, size, window, p] : {std::tuple{3, 1, 1, 4, 0, 0.0},
                                                    {17, 4, 2, 20, 0, 0.0},
                                                    {150, 3, 1, 32, 40, 0.0},
                                                    {70, 2, 2, 16, 0, 0.3}}) {
    std::vector<double> starts;
    for (int64_t t = 0; t < 2 * length; ++t)
      starts.push_back(static_cast<double>(t < length ? t - t % 11 : t - length < 2 ? 0 : 2));
    AttentionMask mask{true, window, true};
    AttentionDropout dropout{p, "noise", false};
    TensorType q = t({2, length, heads, size}), k = t({2, length, kv, size}), at = ids({2, length});
    Case forward{.label = cat("attention documents T=", length),
                 .op = make<Attention>(0.4, mask, dropout),
                 .inputs = {q, k, k, at},
                 .given = {{3, starts}}};
    Case backward{.label = cat("attention_backward documents T=", length),
                  .op = make<AttentionBackward>(0.4, mask, dropout),
                  .inputs = {q, k, k, q, w({2, heads, length}), q, at},
                  .given = {{6, starts}}};
    for (Case* each : {&forward, &backward}) {
      if (p > 0) each->inputs.push_back(keys(2));
      c.push_back(*each);
    }
    c.push_back({.label = cat("rope documents T=", length),
                 .op = make<Rope>(std::vector<double>{1, 0.3}, length == 17, true),
                 .inputs = {q, at},
                 .given = {{1, starts}}});
  }
}

}  // namespace

std::vector<Case> composite_cases() {
  std::vector<Case> c;
  for (auto [m, k, n] : {std::tuple{7, 5, 3}, {16, 100, 9}, {33, 65, 17}, {130, 96, 200}}) {
    c.push_back({cat("linear ", m, "x", k, "x", n), make<Linear>(), {t({m, k}), t({n, k})}});
    c.push_back(
        {cat("linear bias ", m, "x", k, "x", n), make<Linear>(), {t({m, k}), t({n, k}), t({n})}});
    c.push_back({cat("linear_dx ", m, "x", k, "x", n), make<LinearDx>(), {t({m, n}), t({n, k})}});
    c.push_back({cat("linear_dx_add ", m, "x", k, "x", n),
                 make<LinearDx>(true),
                 {t({m, n}), t({n, k}), t({m, k})}});
    c.push_back({cat("linear_dw ", m, "x", k, "x", n), make<LinearDw>(), {t({m, n}), t({m, k})}});
    c.push_back({cat("linear_dw_add ", m, "x", k, "x", n),
                 make<LinearDw>(true),
                 {t({m, n}), t({m, k}), w({n, k})}});
  }
  for (auto [rows, width] : {std::pair{1, 1}, {3, 7}, {37, 130}}) {
    add_dense(c, rows, width);
    c.push_back(
        {cat("rms_norm ", rows, "x", width), make<RmsNorm>(1e-5), {t({rows, width}), t({width})}});
    c.push_back({cat("rms_norm_backward ", rows, "x", width),
                 make<RmsNormBackward>(),
                 {t({rows, width}), t({width}), w({rows}), t({rows, width})}});
    c.push_back({cat("rms_norm_backward_add ", rows, "x", width),
                 make<RmsNormBackward>(true),
                 {t({rows, width}), t({width}), w({rows}), t({rows, width}), t({rows, width})}});
    c.push_back(
        {cat("swiglu ", rows, "x", width), make<Swiglu>(), {t({rows, width}), t({rows, width})}});
    c.push_back({cat("swiglu_backward ", rows, "x", width),
                 make<SwigluBackward>(),
                 {t({rows, width}), t({rows, width}), t({rows, width})}});
    c.push_back({cat("sum_n ", rows, "x", width),
                 make<SumN>(),
                 {t({rows, width}), t({rows, width}), t({rows, width})}});
    c.push_back({cat("embedding ", rows, "x", width),
                 make<Embedding>(),
                 {ids({2, rows}), t({11, width})},
                 11});
    c.push_back({cat("embedding_backward ", rows, "x", width),
                 make<EmbeddingBackward>(11),
                 {ids({2, rows}), t({2, rows, width})},
                 11});
    c.push_back({cat("embedding_backward_add ", rows, "x", width),
                 make<EmbeddingBackward>(11, false, true),
                 {ids({2, rows}), t({2, rows, width}), w({11, width})},
                 11});
    c.push_back({.label = cat("embedding partial ", rows, "x", width),
                 .op = make<Embedding>(true),
                 .inputs = {ids({2, rows}), t({11, width})},
                 .ids = 22,
                 .ignores = true});
    c.push_back({.label = cat("embedding_backward partial ", rows, "x", width),
                 .op = make<EmbeddingBackward>(11, true),
                 .inputs = {ids({2, rows}), t({2, rows, width})},
                 .ids = 22,
                 .ignores = true});
    c.push_back({.label = cat("embedding_backward_add partial ", rows, "x", width),
                 .op = make<EmbeddingBackward>(11, true, true),
                 .inputs = {ids({2, rows}), t({2, rows, width}), w({11, width})},
                 .ids = 22,
                 .ignores = true});
  }
  std::vector<double> frequencies{1, 0.3, 0.05};
  c.push_back({"rope", make<Rope>(frequencies, false), {t({2, 5, 3, 6})}});
  c.push_back({"rope partial inverse", make<Rope>(frequencies, true), {t({1, 9, 2, 11})}});
  c.push_back(
      {"rope scaled", make<Rope>(RotaryAngles(frequencies, 1.7), false), {t({2, 5, 3, 6})}});
  for (auto [length, heads, kv, size, window] :
       {std::tuple{3, 1, 1, 4, 0}, {17, 4, 2, 20, 0}, {70, 3, 1, 32, 9}}) {
    AttentionMask mask{true, window};
    TensorType q = t({2, length, heads, size}), k = t({2, length, kv, size});
    c.push_back({cat("attention T=", length), make<Attention>(0.4, mask), {q, k, k}});
    c.push_back({cat("attention_backward T=", length),
                 make<AttentionBackward>(0.4, mask),
                 {q, k, k, q, w({2, heads, length}), q}});
  }
  for (auto [rows, width, classes] :
       {std::tuple{1, 3, 2}, {13, 33, 77}, {64, 40, 101}, {530, 20, 100}}) {
    c.push_back({.label = cat("linear_cross_entropy ", rows),
                 .op = make<LinearCrossEntropy>(),
                 .inputs = {t({rows, width}), t({classes, width}), ids({rows})},
                 .ids = classes,
                 .ignores = true});
    for (HeadGradients wanted : kHeadGradients) {
      c.push_back({.label = cat("linear_cross_entropy_backward ", rows, name_of(wanted)),
                   .op = make<LinearCrossEntropyBackward>(wanted),
                   .inputs = {t({rows, width}), t({classes, width}), ids({rows}), w({}), w({})},
                   .ids = classes,
                   .ignores = true});
      if (wanted.adds) c.back().inputs.push_back(w({classes, width}));
    }
  }
  add_log_sum_exp(c);
  add_cached(c);
  add_dropout(c);
  add_documents(c);
  c.push_back({.label = "count_targets",
               .op = make<CountTargets>(),
               .inputs = {ids({3, 7})},
               .ids = 5,
               .ignores = true});
  c.push_back({"sum_squares", make<SumSquares>(), {w({2500})}, 1, true});
  for (bool rounds : {false, true}) {
    c.push_back({rounds ? "adamw that rounds" : "adamw",
                 make<AdamW>(0.9, 0.95, 1e-8, rounds),
                 {w({1037}),
                  w({1037}),
                  w({1037}),
                  w({1037}),
                  w({}),
                  w({}),
                  {{}, DType::kBool},
                  {{}, DType::kI64},
                  {{3}, DType::kI64},
                  w({3})},
                 1,
                 true});
  }
  for (const OpPtr& op : {make<Sgd>(0.9), make<Lion>(0.9, 0.95)}) {
    c.push_back({std::string(op->name()),
                 op,
                 {w({1037}),
                  w({1037}),
                  w({1037}),
                  w({}),
                  w({}),
                  {{}, DType::kBool},
                  {{3}, DType::kI64},
                  w({3})},
                 1,
                 true});
  }
  return c;
}

}  // namespace tessera
