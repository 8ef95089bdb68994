// Small tables that claim, or unpack to, more than fits.
#include <gtest/gtest.h>
#include <lz4.h>
#include <lz4frame.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "tables/decompress.h"
#include "tables/table.h"
#include "tables/table_error.h"
#include "tests/base/error_expectation.h"
#include "tests/base/memory_growth.h"
#include "tests/tables/memory_source.h"
#include "tests/tables/parquet_writer.h"

namespace tessera {
namespace {

constexpr int kInt32 = 1, kByteArray = 6;
constexpr int kDictionaryEncoding = 8;

std::string packed_by(Codec codec, const std::string& text) {
  std::string out(text.size() + 4096, '\0');
  const auto from = reinterpret_cast<const Bytef*>(text.data());
  switch (codec) {
    case Codec::kSnappy: snappy::Compress(text.data(), text.size(), &out); return out;
    case Codec::kGzip: {
      uLongf size = out.size();
      EXPECT_EQ(compress(reinterpret_cast<Bytef*>(out.data()), &size, from, text.size()), Z_OK);
      out.resize(size);
      return out;
    }
    case Codec::kZstd:
      out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
      return out;
    case Codec::kLz4Block:
      out.resize(static_cast<size_t>(LZ4_compress_default(
          text.data(), out.data(), static_cast<int>(text.size()),
          static_cast<int>(LZ4_compressBound(static_cast<int>(text.size()))))));
      return out;
    default:
      out.resize(LZ4F_compressFrameBound(text.size(), nullptr));
      out.resize(LZ4F_compressFrame(out.data(), out.size(), text.data(), text.size(), nullptr));
      return out;
  }
}

// Whatever the size is that is told, no more than that is written, and it is not believed where
// so few bytes cannot be so many.
TEST(TableBombs, UnpackToWhatTheySayOrNotAtAll) {
  for (Codec codec :
       {Codec::kSnappy, Codec::kGzip, Codec::kZstd, Codec::kLz4Block, Codec::kLz4Frame}) {
    SCOPED_TRACE(static_cast<int>(codec));
    const std::string packed = packed_by(codec, std::string(64 * kMiB, 'a'));
    const auto bytes = std::as_bytes(std::span(packed));
    ByteBuffer out;
    decompress(codec, bytes, 64 * kMiB, 256 * kMiB, out);
    EXPECT_EQ(out.bytes().size(), size_t{64 * kMiB});
    const Growth growth = growth_of([&] {
      for (uint64_t claimed : {uint64_t{0}, uint64_t{7}, uint64_t{1} << 20}) {
        ByteBuffer small;
        EXPECT_THROW(decompress(codec, bytes, claimed, 256 * kMiB, small), Damaged);
      }
      ByteBuffer none;
      EXPECT_THROW(decompress(codec, bytes, uint64_t{1} << 40, 256 * kMiB, none), Unsupported);
      EXPECT_THROW(decompress(codec, bytes, 65 * kMiB, 64 * kMiB, none), Unsupported);
      EXPECT_THROW(decompress(codec, bytes.first(5), 200 * kMiB, 256 * kMiB, none), Damaged);
    });
    EXPECT_EQ(growth.error, "");
    expect_growth_below(growth, 16 * kMiB);
  }
}

std::string error_of_first_batch(const std::string& content) {
  auto table = open_table(std::make_shared<MemorySource>(content));
  TableBatch batch;
  return user_error([&] { table->read(0, std::vector<size_t>{0}, batch); });
}

TEST(TableBombs, APageThatUnpacksToMoreThanItSaysIsRefused) {
  const std::vector<ThriftStruct> text{leaf_element("text", kRequiredField, kByteArray)};
  for (auto [number, codec] : {std::pair{1, Codec::kSnappy},
                               {2, Codec::kGzip},
                               {6, Codec::kZstd},
                               {7, Codec::kLz4Block}}) {
    SCOPED_TRACE(number);
    const std::string body = packed_by(codec, std::string(128 * kMiB, 'a'));
    for (int64_t claimed : {int64_t{7}, int64_t{1000}, int64_t{1} << 40, int64_t{0x7fffffff}}) {
      const std::string file = parquet_file(text, 1, 1, 1, data_page(1, body, claimed), number);
      const Growth growth = growth_of([&] { throw UserError(error_of_first_batch(file)); });
      expect_contains(growth.error, "column 'text', batch 0");
      expect_contains(growth.error, cat(claimed));
      expect_growth_below(growth, 24 * kMiB);
    }
  }
}

// A run of a number below 256.
std::string run(int64_t count, int number) {
  std::string out;
  for (auto head = static_cast<uint64_t>(count) << 1u;; head >>= 7u) {
    out += static_cast<char>(head < 128 ? head : (head & 127u) | 128u);
    if (head < 128) return out + static_cast<char>(number);
  }
}

// A dictionary of one value, and a page of it: some bytes for any number of times.
std::string dictionary_and_page(const std::string& value, const std::string& levels,
                                int64_t values) {
  ThriftStruct dictionary, header;
  dictionary.integer(1, 1).integer(2, 0);
  const auto bytes = static_cast<int64_t>(value.size());
  header.integer(1, 2).integer(2, bytes).integer(3, bytes).inner(7, dictionary);
  const std::string page = levels + std::string("\1", 1) + run(values, 0);
  return header.bytes() + value +
         data_page(values, page, static_cast<int64_t>(page.size()), kDictionaryEncoding);
}

std::string run_of_one_text(size_t size, int64_t values) {
  return dictionary_and_page(
      little_endian<uint32_t>({static_cast<uint32_t>(size)}) + std::string(size, 'a'), "", values);
}

TEST(TableBombs, ARunOfOneLongTextIsRefused) {
  constexpr int64_t kRows = 8000;
  const std::vector<ThriftStruct> text{leaf_element("text", kRequiredField, kByteArray)};
  const std::string fine = parquet_file(text, 1, kRows, kRows, run_of_one_text(10, kRows));
  auto table = open_table(std::make_shared<MemorySource>(fine));
  TableBatch batch;
  table->read(0, std::vector<size_t>{0}, batch);
  EXPECT_EQ(batch.columns[0].bytes, std::string(10 * kRows, 'a'));
  const std::string file =
      parquet_file(text, 1, kRows, kRows, run_of_one_text(size_t{1} << 20, kRows));
  const Growth growth = growth_of([&] { throw UserError(error_of_first_batch(file)); });
  expect_contains(growth.error,
                  "'memory', column 'text', batch 0: a batch holds more than 268435456 bytes");
  expect_growth_below(growth, 450 * kMiB);  // the text, twice while it grows
}

TEST(TableBombs, AListWithoutEndIsRefused) {
  // One row whose list goes on for 2^31 - 1 entries, each the same word of a dictionary: levels and
  // indices are a run of some bytes each.
  constexpr int64_t kEntries = 0x7fffffff;
  auto levels = [](const std::string& runs) {
    return little_endian<uint32_t>({static_cast<uint32_t>(runs.size())}) + runs;
  };
  const std::string file = parquet_file(
      {leaf_element("ids", kRepeatedField, kInt32)}, 1, 1, kEntries,
      dictionary_and_page(little_endian<int32_t>({5}),
                          levels(run(1, 0) + run(kEntries - 1, 1)) + levels(run(kEntries, 1)),
                          kEntries));
  EXPECT_LT(file.size(), 400u);
  const Growth growth = growth_of([&] { throw UserError(error_of_first_batch(file)); });
  expect_contains(growth.error,
                  "'memory', column 'ids', batch 0: a batch holds more than 33554432 values");
  expect_growth_below(growth, 900 * kMiB);  // 8 bytes a value, twice while it grows, and levels
}

TEST(TableBombs, ClaimsOfAFooterCostNothing) {
  // As many row groups and rows as the numbers can say, none of them there.
  const std::vector<ThriftStruct> text{leaf_element("text", kRequiredField, kByteArray)};
  const std::string file =
      parquet_file(text, 1, int64_t{1} << 47, int64_t{1} << 47, data_page(1, "\0\0\0\0"));
  const Growth growth = growth_of([&] {
    auto table = open_table(std::make_shared<MemorySource>(file));
    EXPECT_EQ(table->rows(), int64_t{1} << 47);
    TableBatch batch;
    table->read(table->batches() / 2, std::vector<size_t>{0}, batch);
  });
  expect_contains(growth.error, "'memory' is damaged: column 'text', batch ");
  expect_growth_below(growth, 8 * kMiB);
}

}  // namespace
}  // namespace tessera
