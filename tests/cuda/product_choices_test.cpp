// Choices of cublasLt's algorithms as text: read again as they were written, and refused where they
// are no such text.
#include "backends/cuda/product_choices.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera::cuda {
namespace {

ProductChoice choice_of(int64_t m) {
  ProductChoice choice{"NVIDIA_H100_80GB_HBM3", 130100};
  choice.problem = {.m = m,
                    .n = 48,
                    .k = 64,
                    .transpose_b = true,
                    .operands = DType::kBF16,
                    .result = DType::kF32,
                    .lda = 64,
                    .ldb = 72,
                    .ldc = 48,
                    .accumulate = true,
                    .align_b = 16};
  choice.workspace_bytes = 4096;
  choice.algorithm = {1, 0xffffffffffffffff, 3, 4, 5, 6, 7, 0x8000000000000000};
  choice.microseconds = 12.5;
  choice.first_microseconds = 13;
  return choice;
}

std::string text_of(std::initializer_list<int64_t> sizes) {
  ProductChoices choices;
  for (int64_t m : sizes) choices.add(choice_of(m));
  return choices.to_text();
}

TEST(ProductChoices, AreReadAsTheyWereWritten) {
  const std::string text = text_of({32, 64, 1024});
  const ProductChoices choices = ProductChoices::parse(text, "here");
  EXPECT_EQ(choices.to_text(), text);
  EXPECT_EQ(choices.size(), 3);
  const ProductChoice want = choice_of(64);
  const ProductChoice* found = choices.find(want.device, want.version, want.problem);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->algorithm, want.algorithm);
  EXPECT_EQ(found->workspace_bytes, want.workspace_bytes);
  EXPECT_EQ(found->microseconds, want.microseconds);
}

// All that an algorithm depends on is part of what it is found by.
TEST(ProductChoices, AreOfOneProductDeviceAndVersion) {
  const ProductChoices choices = ProductChoices::parse(text_of({32}), "here");
  const ProductChoice one = choice_of(32);
  EXPECT_NE(choices.find(one.device, one.version, one.problem), nullptr);
  EXPECT_EQ(choices.find("NVIDIA_H200", one.version, one.problem), nullptr);
  EXPECT_EQ(choices.find(one.device, 130101, one.problem), nullptr);
  for (auto change :
       {+[](ProductProblem& p) { p.m = 33; }, +[](ProductProblem& p) { p.n = 40; },
        +[](ProductProblem& p) { p.k = 56; }, +[](ProductProblem& p) { p.lda = 72; },
        +[](ProductProblem& p) { p.ldb = 80; }, +[](ProductProblem& p) { p.ldc = 56; },
        +[](ProductProblem& p) { p.transpose_a = true; },
        +[](ProductProblem& p) { p.transpose_b = false; },
        +[](ProductProblem& p) { p.result = DType::kBF16; },
        +[](ProductProblem& p) { p.operands = DType::kF32; },
        +[](ProductProblem& p) { p.accumulate = false; }, +[](ProductProblem& p) { p.bias = true; },
        +[](ProductProblem& p) { p.align_a = 32; }, +[](ProductProblem& p) { p.align_b = 32; },
        +[](ProductProblem& p) { p.align_c = 32; }}) {
    ProductProblem other = one.problem;
    change(other);
    EXPECT_EQ(choices.find(one.device, one.version, other), nullptr);
  }
  EXPECT_EQ(choices.newest_version(one.device), 130100);
  EXPECT_EQ(choices.newest_version("NVIDIA_H200"), std::nullopt);
  EXPECT_EQ(choices.count(one.device, 130100), 1);
}

TEST(ProductChoices, SayWhatIsWrongAndWhere) {
  const std::string text = text_of({32});
  const size_t begin = text.rfind("\n", text.size() - 2) + 1;
  const std::string head = text.substr(0, begin), line = text.substr(begin);
  auto with = [&](std::string_view from, std::string_view to) {
    std::string changed = line;
    const size_t at = changed.find(from);
    EXPECT_NE(at, changed.npos) << from;
    return head + changed.replace(at, from.size(), to);
  };
  auto refused = [](const std::string& content, const char* part) {
    expect_contains(message_of<UserError>([&] { ProductChoices::parse(content, "FILE"); }), part);
  };
  refused("", "FILE: the first line is not");
  refused("tessera choices of cublasLt 2\n", "FILE: the first line is not");
  refused(text + line, "FILE, line 4: this product has a line already");
  refused(with(" c ", " "), "line 3: has 18 words, not the 19 of a product");
  refused(with(" c ", " c c "), "has 20 words");
  refused(with(" bf16 f32 ", " f32 bf16 "), "the result is neither f32 nor");
  refused(with(" bf16 f32 ", " f16 f32 "), "the operands' dtype is 'f16'");
  refused(with(" nt ", " nx "), "the layout is 'nx'");
  refused(with(" nt ", " ntt "), "the layout is 'ntt'");
  refused(with(" 32 48 ", " 0 48 "), "m is '0', not a number from 1");
  refused(with(" 32 48 ", " -32 48 "), "m is '-32'");
  refused(with(" 32 48 ", " 99999999999999999999 48 "), "m is '99999999999999999999'");
  refused(with(" 32 48 ", " 32x 48 "), "m is '32x'");
  refused(with(" 64 72 48 ", " 63 72 48 "), "lda is '63', not a number from 64");
  refused(with(" 64 72 48 ", " 64 72 47 "), "ldc is '47', not a number from 48");
  refused(with(" 64 16 64 ", " 64 24 64 "), "align_b is 24, no power of two");
  refused(with(" 64 16 64 ", " 64 256 64 "), "align_b is '256'");
  refused(with(" c ", " C "), "'C' is not nothing, bias, c or bias+c");
  refused(with(" 4096 ", cat(" ", kLibraryWorkspaceBytes, " ")), "the workspace is '");
  refused(with(" 4096 ", " -1 "), "the workspace is '-1'");
  refused(with("ffffffffffffffff", "fffffffffffffff"), "the algorithm has 127 digits");
  refused(with("ffffffffffffffff", "-fffffffffffffff"), "not in hexadecimal digits");
  refused(with("ffffffffffffffff", "0xffffffffffffff"), "not in hexadecimal digits");
  refused(with("12.500", "nan"), "the time is 'nan', no time");
  refused(with("12.500", "-1"), "the time is '-1', no time");
  refused(with("NVIDIA", "NV\tIDIA"), "a character that is no text");
  refused(with("NVIDIA", "NV\xffIDIA"), "a character that is no text");
  refused(head + std::string(2000, ' ') + line, "longer than any product");
  refused(std::string(ProductChoices::kMostBytes + 1, '#'), "choices of products have at most");
  // Every text that is cut off is one with fewer products, or refused.
  for (size_t length = 0; length < text.size(); ++length) {
    try {
      EXPECT_LE(ProductChoices::parse(text.substr(0, length), "FILE").size(), 1);
    } catch (const UserError&) {
    }
  }
}

// Those that the program carries, and over them those of a folder.
TEST(ProductChoices, OfAFolder) {
  const ScratchDirectory folder;
  const int64_t carried = ProductChoices::of_folder(folder.path()).size();
  EXPECT_EQ(ProductChoices::of_folder("").size(), carried);
  write_file_atomic(folder / ProductChoices::kFileName, text_of({31, 77}));
  EXPECT_EQ(ProductChoices::of_folder(folder.path()).size(), carried + 2);
  write_file_atomic(folder / ProductChoices::kFileName, "nothing of the kind");
  expect_contains(user_error([&] { ProductChoices::of_folder(folder.path()); }),
                  "cuda_products.txt': the first line is not");
}

}  // namespace
}  // namespace tessera::cuda
