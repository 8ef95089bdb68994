#include "runtime/kernel_table.h"

#include <gtest/gtest.h>

#include "ops/primitive/elementwise.h"

namespace tessera {
namespace {

Prepare accepts(const std::string& kernel) {
  return [kernel](const PrepareContext&) -> Prepared {
    return Launch{kernel, 0, [](const LaunchArguments&) {}};
  };
}
Prepare declines(const std::string& reason) {
  return [reason](const PrepareContext&) -> Prepared { return reason; };
}

Prepared prepared(const KernelTable& table) {
  Unary op(UnaryKind::kNeg);
  std::vector<TensorType> types{{{4}, DType::kF32}};
  return table.prepare({op, types, types, Mesh()});
}

TEST(KernelTable, TakesTheFirstThatAccepts) {
  KernelTable table;
  table.add("neg", declines("needs AMX"));
  table.add("neg", accepts("avx512"));
  table.add("neg", accepts("portable"));
  table.add("exp", accepts("other op"));
  EXPECT_EQ(std::get<Launch>(prepared(table)).kernel, "avx512");
}

TEST(KernelTable, ALaunchKeepsWhyThoseBeforeItDeclined) {
  KernelTable table;
  table.add("neg", declines("needs AMX"));
  table.add("neg", declines("not for f32"));
  table.add("neg", accepts("portable"));
  EXPECT_EQ(std::get<Launch>(prepared(table)).declined, "needs AMX; not for f32");
  KernelTable first;
  first.add("neg", accepts("portable"));
  EXPECT_EQ(std::get<Launch>(prepared(first)).declined, "");
}

TEST(KernelTable, GivesEveryReasonWhenAllDecline) {
  KernelTable table;
  table.add("neg", declines("needs AMX"));
  table.add("neg", declines("not for i32"));
  EXPECT_EQ(std::get<std::string>(prepared(table)), "needs AMX; not for i32");
}

TEST(KernelTable, SaysThatThereIsNone) {
  KernelTable table;
  table.add("exp", accepts("other op"));
  EXPECT_EQ(std::get<std::string>(prepared(table)), "no kernel for neg");
}

TEST(KernelTable, ShowsTheKernelOpAndTypes) {
  KernelTable table;
  table.add("neg", [](const PrepareContext& context) -> Prepared {
    return cat(context.op.key(), " ", to_string(context.inputs[0]), " ",
               to_string(context.outputs[0]));
  });
  EXPECT_EQ(std::get<std::string>(prepared(table)), "neg{} f32[4] f32[4]");
}

}  // namespace
}  // namespace tessera
