// Attention over rows of several documents: beside its decomposition is in attention_error_test.
#include "tests/backends/cpu/attention_documents.h"

namespace tessera::cpu {
namespace {

Heads random_dout(const AttentionProblem& p) {
  Heads dout(p, 0);
  dout.all = Tensor::random(p.dtype, dout.all.size(), 4);
  return dout;
}

// A document that begins with a block has the bits that it has as a row of its own.
TEST(AttentionDocuments, AreRowsOfTheirOwn) {
  // On AMX the length of a row decides how f32 is multiplied: both are above it, or of bf16.
  for (auto [dtype, length] : {std::pair{DType::kF32, 576}, {DType::kBF16, 192}}) {
    AttentionProblem packed = problem(3 * length, 8, 4, 4, true, 0);
    packed.dtype = dtype;
    packed.batch = 4;  // so many heads that none is cut into chunks, which sum in another order
    AttentionProblem apart = packed;
    apart.batch = 3 * packed.batch;
    apart.tokens = length;
    Packed in = random_inputs(packed, 3, 1);
    Heads dout = random_dout(packed);
    Starts starts = document_starts(packed, {length});
    for (Isa isa : isas_here()) {
      SCOPED_TRACE(cat(name(isa), " ", name(dtype)));
      Result one = run(packed, in, dout, isa, pool_of(2), starts);
      Result each = run(apart, in, dout, isa, pool_of(2));
      EXPECT_TRUE(one.o == each.o);
      EXPECT_TRUE(one.gradient == each.gradient);
    }
  }
}

// One document to a row is no mask.
TEST(AttentionDocuments, OneToARowChangesNoBit) {
  for (AttentionProblem p : {kInChunks[0], kInChunks[1], problem(130, 64, 4, 2, true, 0),
                             with_dropout(problem(65, 8, 6, 2, true, 0), 0.1)}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      p.dtype = dtype;
      Packed in = random_inputs(p, 3, 1);
      Heads dout = random_dout(p);
      Starts starts(static_cast<size_t>(p.batch * p.tokens), 0);
      for (Isa isa : isas_here()) {
        SCOPED_TRACE(cat(name(isa), " ", name(dtype), " T=", p.tokens));
        EXPECT_TRUE(run(p, in, dout, isa, pool_of(2), starts) == run(p, in, dout, isa, pool_of(2)));
      }
    }
  }
}

TEST(AttentionDocuments, SameBitsForEveryNumberOfThreads) {
  for (AttentionProblem p : {kInChunks[0], kInChunks[1], problem(200, 32, 6, 2, true, 90),
                             problem(65, 8, 17, 17, true, 0), with_dropout(kInChunks[0], 0.1)}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      p.dtype = dtype;
      Packed in = random_inputs(p, 3, 1);
      Heads dout = random_dout(p);
      Starts starts = document_starts(p, {100, 7}, 30);
      for (Isa isa : isas_here()) {
        SCOPED_TRACE(cat(name(isa), " ", name(dtype), " T=", p.tokens));
        same_for_all_threads([&](ThreadPool& pool) { return run(p, in, dout, isa, pool, starts); });
      }
    }
  }
}

// Numbers of one document, infinities too, reach no other one that shares no block with it.
TEST(AttentionDocuments, BlocksOfOthersAreNotRead) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t tokens : {300, 600}) {
      AttentionProblem p = problem(tokens, 20, 2, 1, true, 0);
      p.dtype = dtype;
      p.batch = 1;
      constexpr int64_t kBegin = 128, kEnd = 192;  // the document that is not a number
      Starts starts = document_starts(p, {kBegin, kEnd - kBegin, 1000});
      Packed in = random_inputs(p, 7, 1), spoilt = in;
      Heads dout = random_dout(p);
      for (int64_t t = kBegin; t < kEnd; ++t)
        for (int64_t i = 0; i < in.stride - kGap; ++i) spoilt.all.set(t * in.stride + i, NAN);
      for (Isa isa : isas_here()) {
        // On AMX infinities and NaN leave all of f32 to vectors.
        if (isa == Isa::kAmx && dtype == DType::kF32 && tokens > 512) continue;
        SCOPED_TRACE(cat(name(isa), " ", name(dtype), " T=", tokens));
        Result clean = run(p, in, dout, isa, pool_of(2), starts);
        Result out = run(p, spoilt, dout, isa, pool_of(2), starts);
        for (int64_t t = 0; t < tokens; ++t) {
          bool inside = t >= kBegin && t < kEnd;
          for (int64_t i = t * in.stride; i < (t + 1) * in.stride - kGap; ++i) {
            if (inside) {
              ASSERT_TRUE(std::isnan(out.gradient.all[i])) << t;
            } else {
              ASSERT_EQ(out.gradient.all[i], clean.gradient.all[i]) << t;
            }
          }
          ASSERT_EQ(std::isnan(out.lse[t]), inside) << t;
        }
      }
    }
  }
}

// lse in closed form, keys counted.
TEST(AttentionDocuments, UniformScoresGiveLogOfTheVisibleCount) {
  for (const Layout& layout : kLayouts) {
    for (int64_t window : {0, 70}) {
      AttentionProblem p = problem(300, 16, 2, 2, true, window);
      p.batch = 2;
      Packed in = random_inputs(p, 6, 1);
      Starts starts = document_starts(p, layout.lengths, 20);
      for (int64_t row = 0; row < p.batch * p.tokens; ++row)
        for (int64_t i = 0; i < in.v; ++i) in.all.set(row * in.stride + i, 2);
      Heads dout(p, 0);
      for (Isa isa : isas_here()) {
        Result out = run(p, in, dout, isa, pool_of(1), starts);
        for (int64_t i = 0; i < out.lse.size(); ++i) {
          int64_t t = i % p.tokens, b = i / p.tokens / p.heads;
          int64_t seen = t + 1 - starts[static_cast<size_t>(b * p.tokens + t)];
          if (window > 0) seen = std::min(seen, window);
          ASSERT_NEAR(out.lse[i], 4 * 16 * p.scale + std::log(static_cast<double>(seen)), 1e-5)
              << name(isa) << " " << layout.name << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
