// The error of attention and its gradient beside that of their decomposition.
#include "tests/backends/cpu/attention_documents.h"

namespace tessera::cpu {
namespace {

// The rule for a fused kernel: at most 1.5 times the error of its decomposition, or, where that
// happens to be exact, of one rounding of the terms.
void expect_as_good_over(const char* what, const Tensor& kernel, const Doubles& decomposed,
                         const Doubles& exact, const Doubles& terms, Columns columns) {
  double roundoff = kernel.dtype() == DType::kF32 ? 0x1p-24 : 0x1p-9;
  double limit = 1.5 * std::max(error_over(decomposed, exact, terms, columns), roundoff);
  double error = error_over(kernel, exact, terms, columns);
  EXPECT_LE(error, limit) << what << ", " << error * 1.5 / limit << " times the decomposition";
}

void expect_gaps_untouched(const Tensor& tensor, int64_t stride) {
  for (int64_t end = stride; end <= tensor.size(); end += stride)
    for (int64_t i = end - kGap; i < end; ++i) ASSERT_EQ(tensor[i], kUntouched) << i;
}

void expect_as_good_as_decomposition(const AttentionProblem& p, double spread,
                                     const Starts& starts = {}) {
  Packed in = random_inputs(p, 1, spread);
  Heads dout(p, 0);
  dout.all = Tensor::random(p.dtype, dout.all.size(), 2);
  Expected exact = Decomposition<double>(p, in, dout, starts).expected();
  Expected rough = Decomposition<float>(p, in, dout, starts).expected();
  for (Isa isa : isas_here()) {
    SCOPED_TRACE(cat(name(isa), " ", name(p.dtype), " B=", p.batch, " T=", p.tokens,
                     " D=", p.head_dim, " H=", p.heads, "/", p.kv_heads, p.causal ? " causal" : "",
                     " W=", p.window));
    Result out = run(p, in, dout, isa, pool_of(2), starts);
    expect_gaps_untouched(out.o.all, out.o.stride);
    expect_gaps_untouched(out.gradient.all, out.gradient.stride);
    expect_as_good_over("o", out.o.all, rough.o, exact.o, exact.o,
                        {out.o.stride, 0, out.o.stride - kGap});
    // Absolute: adding a constant to all scores changes lse, not its quality.
    expect_as_good_over("lse", out.lse, rough.lse, exact.lse, Doubles(exact.lse.size(), 1 + spread),
                        {1, 0, 1});
    const Packed& g = out.gradient;
    auto gradient = [&](const char* what, int64_t begin, int64_t end) {
      expect_as_good_over(what, g.all, rough.gradient, exact.gradient, exact.gradient_terms,
                          {g.stride, begin, end});
    };
    gradient("dq", 0, g.k);
    gradient("dk", g.k, g.v);
    gradient("dv", g.v, g.stride - kGap);
  }
}

constexpr int64_t kTokens[] = {1, 2, 3, 7, 16, 17, 33, 64, 65, 130, 257};
constexpr int64_t kHeadDims[] = {4, 8, 20, 32, 64, 80, 128};
struct HeadCounts {
  int64_t heads, kv_heads;
};
constexpr HeadCounts kHeadCounts[] = {{1, 1}, {4, 4}, {4, 2}, {6, 1}};
struct Mask {
  bool causal;
  int64_t window;
};
// Windows that end one key before, at and behind the edge of a block of 64, and one without
// causality.
constexpr Mask kMasks[] = {{true, 0},  {true, 2},  {false, 0}, {true, 63},
                           {true, 64}, {true, 66}, {false, 20}};

// Every length with every mask, and every head size with every grouping; the others take turns.
std::vector<AttentionProblem> sampled_problems() {
  std::vector<AttentionProblem> problems;
  for (int64_t tokens : kTokens) {
    for (Mask mask : kMasks) {
      size_t i = problems.size();
      HeadCounts counts = kHeadCounts[i % 4];
      if (tokens > 200) counts = {2, 1};
      problems.push_back(problem(tokens, kHeadDims[(i + i / 7) % 7], counts.heads, counts.kv_heads,
                                 mask.causal, mask.window));
    }
  }
  for (int64_t head_dim : kHeadDims) {
    for (HeadCounts counts : kHeadCounts) {
      size_t i = problems.size();
      Mask mask = kMasks[i % 3];
      problems.push_back(problem(i % 2 == 0 ? 65 : 33, head_dim, counts.heads, counts.kv_heads,
                                 mask.causal, mask.window));
    }
  }
  return problems;
}

TEST(Attention, ErrorIsAtMostThatOfTheDecompositionF32) {
  for (AttentionProblem& p : sampled_problems()) expect_as_good_as_decomposition(p, 1);
}

TEST(Attention, ErrorIsAtMostThatOfTheDecompositionBF16) {
  for (AttentionProblem& p : sampled_problems()) {
    p.dtype = DType::kBF16;
    expect_as_good_as_decomposition(p, 1);
  }
}

TEST(Attention, SharpDistributions) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    AttentionProblem p = problem(130, 64, 2, 1, true, 0);
    p.dtype = dtype;
    expect_as_good_as_decomposition(p, 4);
  }
}

TEST(Attention, WidestHead) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t head_dim : {1, 251, 256}) {
      AttentionProblem p = problem(66, head_dim, 2, 1, true, 0);
      p.dtype = dtype;
      expect_as_good_as_decomposition(p, 1);
    }
  }
}

// From 513 tokens on f32 is multiplied on tiles. The last two have so many heads that none is cut
// into chunks in the backward pass, and several groups of blocks of queries.
TEST(Attention, LongSequences) {
  for (AttentionProblem p :
       {problem(513, 64, 2, 1, true, 0), problem(576, 80, 1, 1, false, 0),
        problem(610, 32, 16, 8, true, 0), with_dropout(problem(530, 8, 8, 8, true, 140), 0.2)}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      p.dtype = dtype;
      expect_as_good_as_decomposition(p, 1);
    }
  }
}

TEST(Attention, HeadsInChunks) {
  for (AttentionProblem p : kInChunks) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      p.dtype = dtype;
      expect_as_good_as_decomposition(p, 1);
    }
  }
}

TEST(Attention, Dropout) {
  for (AttentionProblem p :
       {with_dropout(problem(7, 20, 4, 2, true, 0), 0.1), with_dropout(kInChunks[1], 0.2),
        with_dropout(problem(65, 80, 4, 4, true, 0), 0.5),
        with_dropout(problem(130, 64, 6, 1, false, 0), 0.3),
        with_dropout(problem(200, 32, 2, 2, true, 66), 0.1)}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      p.dtype = dtype;
      expect_as_good_as_decomposition(p, 1);
    }
  }
}

// Every layout over odd lengths, with windows, groups of heads, chunks and dropout; dtypes take
// turns.
TEST(Attention, Documents) {
  for (size_t i = 0; i < std::size(kLayouts); ++i) {
    SCOPED_TRACE(kLayouts[i].name);
    const bool odd = i / 2 % 2 == 1;
    size_t turn = i;
    for (AttentionProblem p :
         {problem(7, 20, 4, 2, true, 0), problem(65, 8, 6, 1, true, 0),
          problem(130, 80, 4, 4, true, 63), problem(257, 32, 4, 2, true, 0), kInChunks[odd ? 1 : 0],
          with_dropout(problem(200, 20, 4, 2, true, odd ? 66 : 0), 0.2)}) {
      p.dtype = turn++ % 2 == 0 ? DType::kF32 : DType::kBF16;
      p.batch = std::max<int64_t>(p.batch, 2);
      expect_as_good_as_decomposition(p, 1, document_starts(p, kLayouts[i].lengths, 20));
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
