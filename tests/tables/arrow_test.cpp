#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "tables/table.h"
#include "tests/base/error_expectation.h"
#include "tests/tables/memory_source.h"
#include "tests/tables/table_text.h"

namespace tessera {
namespace {

std::unique_ptr<TableReader> open(std::string content) {
  return open_table(std::make_shared<MemorySource>(std::move(content)));
}
std::string text_of(std::string content) { return table_text(*open(std::move(content))); }

std::string golden(const char* name) {
  return read_file(std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/goldens/tables" / name);
}

TEST(Arrow, ATruncatedStreamIsAnErrorOrEndsBetweenMessages) {
  const std::string content = golden("stream.arrow");
  const int64_t rows = open(content)->rows();
  int whole = 0;
  for (size_t size = 8; size < content.size(); ++size) {
    try {
      const auto table = open(content.substr(0, size));
      table_text(*table);
      EXPECT_LE(table->rows(), rows);
      ++whole;
    } catch (const UserError& error) {
      expect_contains(error.what(), "memory");
    }
  }
  // Behind the schema and each of the three batches; before the end is marked, its 8 bytes may
  // lack.
  EXPECT_LE(whole, 12);
}

TEST(Arrow, EveryTruncationOfAFileIsAnError) {
  const std::string content = golden("dictionary_file.arrow");
  for (size_t size = 0; size < content.size(); ++size)
    expect_contains(user_error([&] { text_of(content.substr(0, size)); }), "memory");
}

TEST(Arrow, NoChangedByteGoesUnhandled) {
  for (const char* name :
       {"stream.arrow", "dictionary_delta.arrow", "file_lz4.arrow", "large.arrow"}) {
    const std::string content = golden(name);
    for (size_t i = 0; i < content.size(); i += 5) {
      std::string changed = content;
      changed[i] = static_cast<char>(changed[i] ^ 0x41);
      try {
        text_of(changed);
      } catch (const UserError& error) {
        expect_contains(error.what(), "memory");
      }
    }
  }
}

TEST(Arrow, RefusesBuffersThatClaimToUnpackToTooMuch) {
  std::string content = golden("stream_zstd.arrow");
  // Every buffer that is packed: the size before it becomes 2^40.
  size_t buffers = 0;
  for (size_t at = 0; (at = content.find("\x28\xb5\x2f\xfd", at + 1)) != std::string::npos;
       ++buffers)
    content.replace(at - 8, 8, std::string("\0\0\0\0\0\1\0\0", 8));
  ASSERT_GT(buffers, 0u);
  expect_contains(user_error([&] { text_of(content); }), "1099511627776");
}

TEST(Arrow, ReadsTheSelectedRowsAndColumnsOnly) {
  const std::string content = golden("stream.arrow");
  auto source = std::make_shared<MemorySource>(content);
  auto table = open_table(source);
  ASSERT_EQ(table->batches(), 3);
  const uint64_t heads = source->bytes_read();
  TableBatch batch;
  table->read(2, std::vector{table->column("id")}, batch);
  EXPECT_EQ(batch.rows, 8u);
  // The description of one record batch, and 17 bytes of values and bits.
  EXPECT_LT(source->bytes_read() - heads, 1000u);
}

TEST(Arrow, ReadsSeveralColumnsInTheOrderAskedFor) {
  auto table = open(golden("file.arrow"));
  TableBatch batch;
  table->read(0, std::vector{table->column("text"), table->column("input_ids")}, batch);
  ASSERT_EQ(batch.columns.size(), 2u);
  EXPECT_EQ(batch.columns[0].offsets.size(), batch.rows + 1);
  EXPECT_FALSE(batch.columns[0].bytes.empty());
  EXPECT_FALSE(batch.columns[1].integers.empty());
  table->read(1, std::vector{table->column("id")}, batch);
  ASSERT_EQ(batch.columns.size(), 1u);
  EXPECT_TRUE(batch.columns[0].bytes.empty());
}

TEST(Arrow, RefusesWhatItDoesNotRead) {
  auto table = open(golden("stream.arrow"));
  TableBatch batch;
  expect_contains(user_error([&] { table->read(0, std::vector{table->column("score")}, batch); }),
                  "'memory', column 'score', batch 0: its type float64 is not read");
  const std::string message = user_error([&] { table->column("txet"); });
  expect_contains(message, "'memory' has no column 'txet'; did you mean 'text'?");
  expect_contains(message, "input_ids, attention_mask");
  expect_contains(user_error([&] { text_of(golden("refused/null_inside.arrow")); }),
                  "column 'ids', batch 0: there is a null inside a list of integers");
  expect_contains(user_error([&] { text_of(golden("refused/uint64.arrow")); }),
                  "column 'n', batch 0: 18446744073709551615 exceeds 2^63 - 1");
  expect_contains(user_error([&] { open(golden("refused/deep.arrow")); }), "nest deeper than 32");
  expect_contains(user_error([&] { open("FEA1 and so on"); }), "Feather file of version 1");
  expect_contains(user_error([&] { open("Some text that is no table."); }), "'memory' is no table");
}

TEST(Arrow, FormsAreToldApartByTheirBytes) {
  auto form = [](std::string content) { return table_form(MemorySource(std::move(content))); };
  EXPECT_EQ(form(golden("stream.arrow")), TableForm::kArrowStream);
  EXPECT_EQ(form(golden("stream_legacy.arrow")), TableForm::kArrowStream);
  EXPECT_EQ(form(golden("file.arrow")), TableForm::kArrowFile);
  EXPECT_EQ(form(golden("none.parquet")), TableForm::kParquet);
  EXPECT_EQ(form(""), std::nullopt);
  EXPECT_EQ(form("{\"text\": \"a line\"}\n"), std::nullopt);
  EXPECT_EQ(form(std::string(100, '\0')), std::nullopt);
  EXPECT_EQ(form("\x10" + std::string(3, '\0') + std::string(100, '\x7f')), std::nullopt);
}

}  // namespace
}  // namespace tessera
