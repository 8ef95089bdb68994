#include <cmath>
#include <limits>
#include <set>

#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/registry.h"
#include "tests/backends/cpu/primitive_bound.h"
#include "tests/backends/cpu/primitive_case.h"
#include "tests/base/error_expectation.h"
#include "tests/ops/op_samples.h"

namespace tessera::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// The op with `dtype` in place of the f64 of its attributes.
OpPtr retyped(const OpSample& sample, DType dtype) {
  TensorType result = sample.op->infer({sample.inputs, sample.mesh})[0];
  result.dtype = dtype;
  const Op* op = sample.op.get();
  if (auto* constant = dynamic_cast<const Constant*>(op))
    return make<Constant>(result, constant->value());
  if (auto* table = dynamic_cast<const Table*>(op)) return make<Table>(dtype, table->values());
  if (auto* iota = dynamic_cast<const Iota*>(op)) return make<Iota>(result, iota->dim());
  if (dynamic_cast<const Convert*>(op)) return make<Convert>(dtype);
  if (dynamic_cast<const ScatterAdd*>(op)) return make<ScatterAdd>(result.shape[0], dtype);
  if (auto* dot = dynamic_cast<const Dot*>(op)) {
    return make<Dot>(dot->batch(), dot->contract_a(), dot->contract_b(), dtype);
  }
  return sample.op;
}

Case as_case(const OpSample& sample, DType dtype) {
  Case c{retyped(sample, dtype), sample.inputs, {}};
  for (size_t i = 0; i < c.types.size(); ++i) {
    if (is_float(c.types[i].dtype)) c.types[i].dtype = dtype;
    c.values.push_back(
        random_values(c.types[i], sample.low, sample.high, sample.integer_bound, i + 1));
  }
  return c;
}

bool has_launch(const Op& op) {
  return op.view_offsets().empty() && op.placement_offsets().empty();
}

std::vector<OpSample> samples_with_launch() {
  std::vector<OpSample> samples;
  for (OpSample& sample : op_samples()) {
    if (sample.op->tier() == Tier::kPrimitive && has_launch(*sample.op))
      samples.push_back(std::move(sample));
  }
  return samples;
}

TEST(Primitives, EveryOneHasALaunchAndASample) {
  std::set<std::string_view> sampled;
  for (const OpSample& sample : samples_with_launch()) sampled.insert(sample.op->name());
  std::set<std::string_view> storage{"stop_gradient", "reshape", "unflatten", "flatten", "unstack"};
  for (const OpRecord& record : op_registry()) {
    if (record.tier == Tier::kPrimitive) {
      EXPECT_NE(sampled.contains(record.name), storage.contains(record.name)) << record.name;
    }
  }
}

TEST(Primitives, AgreeWithTheReference) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    for (const OpSample& sample : samples_with_launch()) {
      SCOPED_TRACE(cat(sample.op->key(), " ", sample.label, " ", name(dtype)));
      Case c = as_case(sample, dtype);
      Doubles want = run_reference(c);
      for (Isa isa : {Isa::kPortable, detect_isa()}) {
        Doubles got = run_one(c, isa);
        if (kExact.contains(c.op->name())) {
          expect_same(got, want);
        } else {
          expect_close(c.result().dtype, got, want);
        }
      }
    }
  }
}

Case random_case(OpPtr op, std::vector<TensorType> types, int64_t bound = 1) {
  Case c{std::move(op), std::move(types), {}};
  for (size_t i = 0; i < c.types.size(); ++i)
    c.values.push_back(random_values(c.types[i], 0.5, 2, bound, i + 1));
  return c;
}

// Shapes that do not fill their last tile; all but the products span several.
std::vector<Case> large_cases(DType dtype) {
  auto f = [&](Shape shape) { return TensorType{std::move(shape), dtype}; };
  TensorType x = f({37, 41, 53}), ids{{513}, DType::kI32}, flags{{37, 41, 53}, DType::kBool};
  using Dims = std::vector<int64_t>;
  return {
      random_case(make<Unary>(UnaryKind::kExp), {x}),
      random_case(make<Unary>(UnaryKind::kIsFinite), {x}),
      random_case(make<Binary>(BinaryKind::kAdd), {x, x}),
      random_case(make<Binary>(BinaryKind::kDiv), {x, x}),
      random_case(make<Compare>(Comparison::kGe), {x, x}),
      random_case(make<Select>(), {flags, x, x}, 2),
      random_case(make<Convert>(dtype == DType::kF32 ? DType::kBF16 : DType::kF32), {x}),
      random_case(make<Constant>(x, 0.3), {}),
      random_case(make<Iota>(x, 1), {}),
      random_case(make<Transpose>(Dims{2, 1, 0}), {x}),
      random_case(make<Transpose>(Dims{1, 0, 2}), {x}),
      random_case(make<Broadcast>(Shape{37, 41, 53}, Dims{0, 2}), {f({37, 53})}),
      random_case(make<Broadcast>(Shape{1000, 33}, Dims{}), {f({})}),
      random_case(make<Slice>(1, 2, 40), {x}),
      random_case(make<Pad>(1, 2, 3, -1.5), {x}),
      random_case(make<Concatenate>(2), {x, f({37, 41, 1}), x}),
      random_case(make<Gather>(), {f({97, 5, 11}), ids}, 97),
      random_case(make<ScatterAdd>(97, dtype), {ids, f({513, 5, 11})}, 97),
      random_case(make<ScatterAdd>(3, DType::kF32), {ids, f({513, 4099})}, 3),
      random_case(make<Reduce>(Reduction::kSum, Dims{0}), {x}),
      random_case(make<Reduce>(Reduction::kSum, Dims{2}), {x}),
      random_case(make<Reduce>(Reduction::kSum, Dims{0, 2}), {x}),
      random_case(make<Reduce>(Reduction::kSum, Dims{0, 1, 2}), {x}),
      random_case(make<Reduce>(Reduction::kMax, Dims{1}), {x}),
      random_case(make<Dot>(0, 1, 1, dtype), {f({61, 67}), f({301, 67})}),
      random_case(make<Dot>(0, 1, 0, DType::kF32), {f({61, 67}), f({67, 301})}),
      random_case(make<Dot>(1, 1, 2, dtype), {f({3, 67, 31}), f({3, 300, 67})}),
  };
}

TEST(Primitives, LargeOnesDoNotDependOnThreads) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& c : large_cases(dtype)) {
      SCOPED_TRACE(cat(c.op->key(), " ", name(dtype)));
      ThreadPool one(1);
      Bytes want = run_launch(c, one);
      expect_close(c.result().dtype, to_doubles(c.result().dtype, want), run_reference(c));
      for (int threads : {2, 3, 5}) {
        ThreadPool pool(threads);
        EXPECT_EQ(run_launch(c, pool), want) << threads << " threads";
      }
    }
  }
}

TEST(Primitives, ResultsMayShareTheStorageThatTheOpAllows) {
  ThreadPool pool(2);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<Case> cases = large_cases(dtype);
    for (const OpSample& sample : samples_with_launch()) cases.push_back(as_case(sample, dtype));
    for (const Case& c : cases) {
      for (InPlacePair pair : c.op->in_place_pairs()) {
        EXPECT_EQ(run_launch(c, pool, detect_isa(), pair.input), run_launch(c, pool))
            << c.op->key();
      }
    }
  }
}

TEST(Primitives, OperandsWithoutElements) {
  TensorType x{{0, 3}, DType::kF32}, ids{{0}, DType::kI64};
  using Dims = std::vector<int64_t>;
  EXPECT_TRUE(run_one({make<Unary>(UnaryKind::kExp), {x}, {{}}}).empty());
  EXPECT_TRUE(run_one({make<Transpose>(Dims{1, 0}), {x}, {{}}}).empty());
  EXPECT_TRUE(run_one({make<Iota>(x, 1), {}, {}}).empty());
  EXPECT_TRUE(run_one({make<Gather>(), {x, ids}, {{}, {}}}).empty());
  expect_same(run_one({make<Reduce>(Reduction::kSum, Dims{0}), {x}, {{}}}), {0, 0, 0});
  expect_same(run_one({make<ScatterAdd>(2, DType::kF32), {ids, x}, {{}, {}}}), {0, 0, 0, 0, 0, 0});
  expect_same(run_one({make<Pad>(0, 1, 1, 2.5), {x}, {{}}}), {2.5, 2.5, 2.5, 2.5, 2.5, 2.5});
  expect_same(run_one({make<Dot>(0, 0, 0, DType::kF32), {x, {{0, 1}, DType::kF32}}, {{}, {}}}),
              {0, 0, 0});
  expect_same(run_one({make<Concatenate>(0), {x, {{1, 3}, DType::kF32}}, {{}, {1, 2, 3}}}),
              {1, 2, 3});
}

TEST(Primitives, NanAndInfinity) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    SCOPED_TRACE(name(dtype));
    TensorType x{{5}, dtype}, flags{{5}, DType::kBool};
    Doubles a{kNan, 1, kInf, -kInf, kNan}, b{1, kNan, kInf, kInf, kNan};
    for (auto kind : {BinaryKind::kAdd, BinaryKind::kSub, BinaryKind::kMul, BinaryKind::kDiv,
                      BinaryKind::kMax, BinaryKind::kMin}) {
      Case c{make<Binary>(kind), {x, x}, {a, b}};
      expect_same(run_one(c), run_reference(c));
    }
    EXPECT_TRUE(std::isnan(run_one({make<Binary>(BinaryKind::kMax), {x, x}, {a, b}})[1]));
    for (auto comparison : {Comparison::kEq, Comparison::kNe, Comparison::kLt, Comparison::kLe,
                            Comparison::kGt, Comparison::kGe}) {
      Doubles got = run_one({make<Compare>(comparison), {x, x}, {a, b}});
      double with_nan = comparison == Comparison::kNe ? 1 : 0;
      for (size_t i : {0u, 1u, 4u}) EXPECT_EQ(got[i], with_nan) << name(comparison);
    }
    expect_same(run_one({make<Unary>(UnaryKind::kIsFinite), {x}, {a}}), {0, 1, 0, 0, 0});
    expect_same(
        run_one({make<Select>(), {flags, x, x}, {{0, 1, 1, 0, 0}, a, {1, kNan, kNan, 2, 3}}}),
        {1, 1, kInf, 2, 3});
    auto max = make<Reduce>(Reduction::kMax, std::vector<int64_t>{0});
    expect_same(run_one({max, {x}, {{1, kNan, kInf, 2, 3}}}), {kNan});
    expect_same(run_one({max, {x}, {{-kInf, -kInf, -kInf, -kInf, -kInf}}}), {-kInf});
    expect_same(run_one({make<Convert>(DType::kBF16), {x}, {{kNan, kInf, -kInf, 3.4e38, -0.0}}}),
                {kNan, kInf, -kInf, ref::round_to(DType::kBF16, ref::round_to(dtype, 3.4e38)), 0});
    expect_same(run_one({make<Unary>(UnaryKind::kLog), {x}, {{0, -1, 1, kInf, kNan}}}),
                {-kInf, kNan, 0, kInf, kNan});
  }
}

TEST(Primitives, IntegersAreExact) {
  for (DType dtype : {DType::kI32, DType::kI64}) {
    SCOPED_TRACE(name(dtype));
    // Neighbours of 2^24 and 2^53, which floats of either size would confuse.
    double big = dtype == DType::kI32 ? 16777217 : 9007199254740991;
    TensorType x{{4}, dtype};
    Doubles a{big, -7, 7, 5}, b{-1, 2, -2, 0};
    auto binary = [&](BinaryKind kind) { return run_one({make<Binary>(kind), {x, x}, {a, b}}); };
    expect_same(binary(BinaryKind::kAdd), {big - 1, -5, 5, 5});
    expect_same(binary(BinaryKind::kSub), {big + 1, -9, 9, 5});
    expect_same(binary(BinaryKind::kMul), {-big, -14, -14, 0});
    expect_same(binary(BinaryKind::kDiv), {-big, -3, -3, -1});
    expect_same(binary(BinaryKind::kMax), {big, 2, 7, 5});
    expect_same(binary(BinaryKind::kMin), {-1, -7, -2, 0});
    expect_same(run_one({make<Compare>(Comparison::kGt), {x, x}, {a, {big - 1, -7, 8, 4}}}),
                {1, 0, 0, 1});
    auto sum = make<Reduce>(Reduction::kSum, std::vector<int64_t>{0});
    expect_same(run_one({sum, {x}, {{big - 1, 2, -1, 0}}}), {big});
    auto max = make<Reduce>(Reduction::kMax, std::vector<int64_t>{0});
    expect_same(run_one({max, {x}, {{-big, -big + 1, -big, -big}}}), {-big + 1});
    TensorType ids{{4}, DType::kI64};
    expect_same(run_one({make<ScatterAdd>(2, dtype), {ids, x}, {{1, 1, 0, 1}, {big, -1, 4, 1}}}),
                {4, big});
    expect_same(run_one({make<Gather>(), {x, ids}, {a, {3, 0, 0, 1}}}), {5, big, big, -7});
    expect_same(run_one({make<Iota>(x, 0), {}, {}}), {0, 1, 2, 3});
    expect_same(run_one({make<Constant>(x, -big), {}, {}}), {-big, -big, -big, -big});
  }
  // The lowest integer over -1 does not trap, sums wrap around.
  TensorType x{{1}, DType::kI32};
  double low = -2147483648.0;
  expect_same(run_one({make<Binary>(BinaryKind::kDiv), {x, x}, {{low}, {-1}}}), {low});
  expect_same(run_one({make<Binary>(BinaryKind::kSub), {x, x}, {{low}, {1}}}), {2147483647});
}

TEST(Primitives, ConversionsBetweenAllDtypes) {
  std::vector<DType> dtypes{DType::kF64, DType::kF32, DType::kBF16,
                            DType::kI64, DType::kI32, DType::kBool};
  for (DType from : dtypes) {
    for (DType to : dtypes) {
      Doubles values = from == DType::kBool ? Doubles{0, 1, 1, 0}
                       : is_float(from)     ? Doubles{-2.75, 0, 1.00390625, 300.5}
                                            : Doubles{-3, 0, 1, 65537};
      Case c{make<Convert>(to), {{{4}, from}}, {values}};
      SCOPED_TRACE(cat(name(from), " to ", name(to)));
      expect_same(run_one(c), run_reference(c));
    }
  }
  TensorType x{{4}, DType::kF32};
  expect_same(run_one({make<Convert>(DType::kI32), {x}, {{kNan, kInf, -1e30, 2147483520}}}),
              {0, 2147483647, -2147483648.0, 2147483520});
  expect_same(run_one({make<Convert>(DType::kBool), {x}, {{kNan, kInf, -0.0, 1e-45}}}),
              {1, 1, 0, 1});
}

TEST(Primitives, SumsAscendInF32) {
  // 2^24 + 1 is not an f32: only what is added up before 2^24 comes through.
  TensorType x{{3}, DType::kF32}, ids{{3}, DType::kI32};
  auto sum = make<Reduce>(Reduction::kSum, std::vector<int64_t>{0});
  auto scatter = make<ScatterAdd>(1, DType::kF32);
  auto dot = make<Dot>(0, 0, 0, DType::kF32);
  for (auto [values, expected] :
       {std::pair<Doubles, double>{{16777216, 1, 1}, 16777216}, {{1, 1, 16777216}, 16777218}}) {
    expect_same(run_one({sum, {x}, {values}}), {expected});
    expect_same(run_one({scatter, {ids, x}, {{0, 0, 0}, values}}), {expected});
    expect_same(run_one({dot, {x, x}, {values, {1, 1, 1}}}), {expected});
  }
}

TEST(Primitives, ScatterAddRoundsOnceForBf16) {
  // 256 + 1 is not a bf16, 256 + 1 + 1 is.
  TensorType ids{{3}, DType::kI32}, x{{3}, DType::kBF16};
  expect_same(run_one({make<ScatterAdd>(1, DType::kBF16), {ids, x}, {{0, 0, 0}, {256, 1, 1}}}),
              {258});
  expect_same(run_one({make<ScatterAdd>(1, DType::kF32), {ids, x}, {{0, 0, 0}, {256, 1, 0}}}),
              {257});
}

TEST(Primitives, IdsOutsideTheTableAreReported) {
  TensorType table{{5, 3}, DType::kF32}, updates{{2, 3}, DType::kF32}, ids{{2}, DType::kI32};
  for (double id : {-1.0, 5.0}) {
    for (const Case& c :
         {Case{make<Gather>(), {table, ids}, {Doubles(15), {0, id}}},
          Case{make<ScatterAdd>(5, DType::kF32), {ids, updates}, {{0, id}, Doubles(6)}}}) {
      expect_contains(message_of<InternalError>([&] { run_one(c); }),
                      cat(c.op->name(), ": id ", static_cast<int>(id), " of 5 rows"));
    }
  }
}

TEST(Primitives, WhatTheyDoNotTakeIsDeclinedWithAReason) {
  ThreadPool pool(1);
  auto reason = [&](const Case& c) { return std::get<std::string>(prepare(c, pool)); };
  TensorType half{{2}, DType::kF16};
  EXPECT_EQ(reason({make<Unary>(UnaryKind::kExp), {half}, {}}),
            "portable exp has no kernel for f16");
  EXPECT_EQ(reason({make<Binary>(BinaryKind::kAdd), {half, half}, {}}),
            "vector add takes f32 and bf16, not f16; portable add has no kernel for f16");
  EXPECT_EQ(
      reason({make<ScatterAdd>(1, DType::kI32), {{{2}, DType::kI32}, {{2}, DType::kF32}}, {}}),
      "portable scatter_add has no kernel for f32 into i32");
  TensorType deep{Shape(9, 1), DType::kF32};
  EXPECT_EQ(reason({make<Slice>(0, 0, 1), {deep}, {}}), "portable slice takes up to 8 dims, not 9");
}

TEST(Primitives, LaunchesAreNamed) {
  ThreadPool pool(1);
  TensorType x{{2}, DType::kF32};
  auto kernel = [&](const Case& c, Isa isa) {
    return std::get<Launch>(prepare(c, pool, isa)).kernel;
  };
  EXPECT_EQ(kernel({make<Binary>(BinaryKind::kMul), {x, x}, {}}, Isa::kPortable), "mul portable");
  EXPECT_EQ(kernel({make<Binary>(BinaryKind::kAdd), {x, x}, {}}, Isa::kAmx), "add amx");
  EXPECT_EQ(kernel({make<Convert>(DType::kF64), {x}, {}}, Isa::kAmx), "convert portable");
}

}  // namespace
}  // namespace tessera::cpu
