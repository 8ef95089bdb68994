#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "tables/table.h"
#include "tests/base/error_expectation.h"
#include "tests/tables/memory_source.h"
#include "tests/tables/parquet_writer.h"
#include "tests/tables/table_text.h"

namespace tessera {
namespace {

constexpr int kInt32 = 1, kInt64 = 2, kByteArray = 6;
constexpr int kList = 3;

std::unique_ptr<TableReader> open(std::string content) {
  return open_table(std::make_shared<MemorySource>(std::move(content)));
}
std::string text_of(std::string content) { return table_text(*open(std::move(content))); }

std::string golden(const char* name) {
  return read_file(std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/goldens/tables" / name);
}

TEST(Parquet, TheFirstPageSaysWhatReadingAColumnTakes) {
  const auto column = leaf_element("x", kRequiredField, kInt64);
  const std::string page = little_endian<int64_t>({1, 2, 3});
  EXPECT_EQ(open(parquet_file({column}, 1, 3, 3, data_page(3, page)))->page_bytes(0), 24);
  // Packed (by gzip, it says) and unpacked.
  EXPECT_EQ(open(parquet_file({column}, 1, 3, 3, data_page(3, page, 1000), 2))->page_bytes(0),
            1024);
  const std::string broken = parquet_file({column}, 1, 3, 4, data_page(3, page).substr(0, 5));
  EXPECT_EQ(open(broken)->page_bytes(0), 0);
}

// Rows [1, 2], [], [3].
std::string lists_page(int present) {
  return data_page(4, level_runs({0, 1, 0, 0}) +
                          level_runs({present, present, present - 1, present}) +
                          little_endian<int32_t>({1, 2, 3}));
}

TEST(Parquet, ReadsListsAsOlderWritersHaveThem) {
  const std::string expected = "values of ids\n[1,2]\n[]\n[3]\n";
  const auto bare = leaf_element("ids", kRepeatedField, kInt32);
  EXPECT_EQ(text_of(parquet_file({bare}, 1, 3, 4, lists_page(1))),
            "column ids integers\n" + expected);
  const auto element = leaf_element("element", kRepeatedField, kInt32);
  EXPECT_EQ(text_of(parquet_file({group_element("ids", kRequiredField, 1, kList), element}, 1, 3, 4,
                                 lists_page(1))),
            "column ids integers\n" + expected);
  EXPECT_EQ(text_of(parquet_file({group_element("ids", kOptionalField, 1, kList), element}, 1, 3, 4,
                                 lists_page(2))),
            "column ids integers\n" + expected);
  // A repeated group called `array` or NAME_tuple is the element itself, any other is around it.
  const auto inside = leaf_element("x", kRequiredField, kInt32);
  for (const char* name : {"array", "ids_tuple"}) {
    EXPECT_EQ(text_of(parquet_file({group_element("ids", kRequiredField, 1, kList),
                                    group_element(name, kRepeatedField, 1), inside},
                                   1, 3, 4, lists_page(1))),
              "column ids nested\nvalues of ids\n[{\"x\":1},{\"x\":2}]\n[]\n[{\"x\":3}]\n");
  }
  EXPECT_EQ(text_of(parquet_file({group_element("ids", kRequiredField, 1, kList),
                                  group_element("bag", kRepeatedField, 1), inside},
                                 1, 3, 4, lists_page(1))),
            "column ids integers\n" + expected);
}

TEST(Parquet, TellsNullRowsFromEmptyLists) {
  const std::string page =
      data_page(3, level_runs({0, 0, 0}) + level_runs({0, 1, 2}) + little_endian<int32_t>({7}));
  EXPECT_EQ(text_of(parquet_file({group_element("ids", kOptionalField, 1, kList),
                                  leaf_element("element", kRepeatedField, kInt32)},
                                 1, 3, 3, page)),
            "column ids integers\nvalues of ids\nnull\n[]\n[7]\n");
}

TEST(Parquet, RefusesANullInsideAListOfIntegers) {
  const std::string page =
      data_page(2, level_runs({0, 1}) + level_runs({2, 1}) + little_endian<int32_t>({7}));
  auto table = open(parquet_file(
      {group_element("ids", kRequiredField, 1, kList), group_element("list", kRepeatedField, 1),
       leaf_element("element", kOptionalField, kInt32)},
      1, 1, 2, page));
  TableBatch batch;
  expect_contains(user_error([&] { table->read(0, std::vector<size_t>{0}, batch); }),
                  "'memory', column 'ids', batch 0: there is a null inside a list of integers");
}

std::string many_rows(int pages, int rows_per_page) {
  std::string out;
  for (int64_t page = 0, value = 0; page < pages; ++page) {
    std::vector<int64_t> values;
    for (int i = 0; i < rows_per_page; ++i) values.push_back(value++);
    out.append(data_page(rows_per_page, little_endian(values)));
  }
  return parquet_file({leaf_element("n", kRequiredField, kInt64)}, 1,
                      int64_t{pages} * rows_per_page, int64_t{pages} * rows_per_page, out);
}

TEST(Parquet, ReadsAnyBatchFirst) {
  auto table = open(many_rows(20, 1001));
  ASSERT_EQ(table->rows(), 20020);
  ASSERT_EQ(table->batches(), 3);
  TableBatch batch;
  for (int64_t number : {1, 2, 0, 0, 2, 1}) {
    table->read(number, std::vector<size_t>{0}, batch);
    ASSERT_EQ(static_cast<int64_t>(batch.rows), table->batch_rows(number));
    for (size_t row = 0; row < batch.rows; ++row)
      ASSERT_EQ(batch.columns[0].integers[row],
                table->first_row(number) + static_cast<int64_t>(row));
  }
}

TEST(Parquet, ReadsTheSelectedColumnsOnly) {
  const std::string content = golden("plain_v1.parquet");
  auto source = std::make_shared<MemorySource>(content);
  auto table = open_table(source);
  const uint64_t footer = source->bytes_read();
  TableBatch batch;
  table->read(0, std::vector{table->column("id")}, batch);
  EXPECT_EQ(batch.rows, 40u);
  EXPECT_LT(source->bytes_read() - footer, content.size() / 8);
}

TEST(Parquet, PassesOverPagesByTheirHeaders) {
  const std::string content = many_rows(20, 10000);
  auto source = std::make_shared<MemorySource>(content);
  auto table = open_table(source);
  const int64_t last = table->batches() - 1;
  TableBatch batch;
  table->read(last, std::vector<size_t>{0}, batch);
  EXPECT_EQ(batch.columns[0].integers.back(), 199999);
  // A header of each of 19 pages, and one page.
  EXPECT_LT(source->bytes_read(), content.size() / 8);
}

TEST(Parquet, EveryTruncationIsAnError) {
  const std::string content = golden("runs.parquet");
  for (size_t size = 0; size < content.size(); ++size)
    expect_contains(user_error([&] { text_of(content.substr(0, size)); }), "memory");
}

// With checksums no byte of a page can change without being noticed; elsewhere all may change but
// the class of the error.
TEST(Parquet, NoChangedByteGoesUnhandled) {
  const std::string content = golden("zstd.parquet");
  size_t checksums = 0;
  for (size_t i = 0; i < content.size(); i += 3) {
    std::string changed = content;
    changed[i] = static_cast<char>(changed[i] ^ 0x41);
    try {
      text_of(changed);
    } catch (const UserError& error) {
      if (std::string_view(error.what()).find("checksum") != std::string_view::npos) ++checksums;
    }
  }
  EXPECT_GT(checksums, 100u);
}

void expect_refused(const std::string& content, std::string_view why,
                    Caller caller = Caller::current()) {
  const std::string message = user_error([&] { text_of(content); }, caller);
  expect_contains(message, why, caller);
  expect_contains(message, "column 'text'", caller);
}

TEST(Parquet, RefusesWhatItCannotUnpack) {
  const std::vector<ThriftStruct> text{leaf_element("text", kRequiredField, kByteArray)};
  const std::string body = little_endian<uint32_t>({3}) + "abc";
  auto file = [&](const std::string& page, int codec) {
    return parquet_file(text, 1, 1, 1, page, codec);
  };
  EXPECT_EQ(text_of(file(data_page(1, body), 0)), "column text text\nvalues of text\nx616263\n");
  expect_refused(file(data_page(1, body), 3), "packed by LZO");
  expect_refused(file(data_page(1, body), 5), "Hadoop's form of LZ4");
  expect_refused(file(data_page(1, body), 77), "unknown codec, number 77");
  expect_refused(file(data_page(1, body, 7, 11), 0), "unknown encoding 11");
  expect_refused(file(data_page(1, body, 7, 5), 0), "the encoding 5, which is not one of its type");
  expect_refused(file(data_page(1, body, 7, 8), 0), "needs a dictionary");
  for (int codec : {1, 2, 4, 6, 7}) {
    expect_refused(file(data_page(1, body), codec), "do not unpack to 7");
    expect_refused(file(data_page(1, body, 0x7fffffff), codec), "2147483647");
  }
  expect_refused(file(data_page(1, body, 200'000'000), 7), "7 packed bytes cannot be 200000000");
}

TEST(Parquet, RefusesNumbersThatDoNotFit) {
  const std::vector<ThriftStruct> text{leaf_element("text", kRequiredField, kByteArray)};
  const std::string body = little_endian<uint32_t>({0xfffffff0}) + "abc";
  expect_refused(parquet_file(text, 1, 1, 1, data_page(1, body)),
                 "a page ends before its values do");
  const std::string empty = little_endian<uint32_t>({0});
  expect_refused(parquet_file(text, 1, 2, 1, data_page(1, empty)), "end after row 1");
  expect_refused(parquet_file(text, 1, 2, 2, data_page(1, empty)), "have 1 values of 2");
  expect_refused(parquet_file(text, 1, 1, 1, data_page(-1, empty)), "holds the number -1");
  const std::string shortened = parquet_file(text, 1, int64_t{1} << 62, 1, data_page(1, empty));
  expect_contains(user_error([&] { open(shortened); }), "a group of 4611686018427387904 rows");
  // Row groups of absurd length cost nothing until their pages are read, which are not there.
  auto table = open(parquet_file(text, 1, int64_t{1} << 40, 1, data_page(1, empty)));
  TableBatch batch;
  expect_contains(
      user_error([&] { table->read(table->batches() - 1, std::vector<size_t>{0}, batch); }),
      "end after row 1");
}

TEST(Parquet, RefusesDeepOrBrokenSchemas) {
  std::vector<ThriftStruct> deep;
  for (int i = 0; i < 100; ++i) deep.push_back(group_element("g", kOptionalField, 1));
  deep.push_back(leaf_element("x", kOptionalField, kInt32));
  expect_contains(user_error([&] { open(parquet_file(deep, 1, 0, 0, "")); }),
                  "nest deeper than 64");
  const auto leaf = leaf_element("x", kOptionalField, kInt32);
  expect_contains(user_error([&] { open(parquet_file({leaf}, 2, 0, 0, "")); }), "fewer elements");
  expect_contains(user_error([&] {
                    open(parquet_file({leaf, leaf}, 1, 0, 0, ""));
                  }),
                  "belong nowhere");
  expect_contains(user_error([&] {
                    open(parquet_file({leaf, leaf}, 2, 0, 0, ""));
                  }),
                  "has 1 columns, the schema has 2");
  expect_contains(
      user_error([&] { open(parquet_file({leaf_element("x", 7, kInt32)}, 1, 0, 0, "")); }),
      "repetition 7");
}

TEST(Parquet, SaysThatItIsEncrypted) {
  std::string content = many_rows(1, 5);
  content.replace(content.size() - 4, 4, "PARE");
  expect_contains(user_error([&] { open(content); }), "encrypted Parquet file");
  content.replace(0, 4, "PARE");
  expect_contains(user_error([&] { open(content); }), "encrypted Parquet file");
  // A text may begin so.
  expect_contains(user_error([&] { open("PARENTS AND CHILDREN"); }), "is no table");
}

}  // namespace
}  // namespace tessera
