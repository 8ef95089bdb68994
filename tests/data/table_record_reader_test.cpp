#include "data/table_record_reader.h"

#include <gtest/gtest.h>

#include "base/ignore_index.h"
#include "base/text.h"
#include "data/dataset_files.h"
#include "data/document_reader.h"
#include "tests/base/error_expectation.h"
#include "tests/data/packed_text.h"

namespace tessera {
namespace {

const std::string kTables = TESSERA_SOURCE_DIR "/tests/goldens/tables/";

std::shared_ptr<const ByteSource> source(const std::string& name) {
  return std::make_shared<ReadFile>(kTables + name);
}

// What the table itself says of a column, row by row.
class TableRecordReaderTest : public testing::TestWithParam<const char*> {
 protected:
  TableRecordReaderTest() : table_(open_table(source(GetParam()))) {}

  ColumnValues column(const std::string& name) {
    ColumnValues all;
    all.offsets.push_back(0);
    const std::vector<size_t> columns{table_->column(name)};
    TableBatch batch;
    for (int64_t i = 0; i < table_->batches(); ++i) {
      table_->read(i, columns, batch);
      const ColumnValues& part = batch.columns[0];
      for (size_t row = 0; row < batch.rows; ++row) {
        if (table_->columns()[columns[0]].type == ColumnType::kIntegers) {
          const auto list = part.list(row);
          all.integers.insert(all.integers.end(), list.begin(), list.end());
          all.offsets.push_back(std::ssize(all.integers));
        } else {
          all.bytes += part.text(row);
          all.offsets.push_back(std::ssize(all.bytes));
        }
      }
    }
    return all;
  }
  size_t rows() const { return static_cast<size_t>(table_->rows()); }

  std::unique_ptr<TableReader> table_;
};

INSTANTIATE_TEST_SUITE_P(Forms, TableRecordReaderTest,
                         testing::Values("file.arrow", "file_lz4.arrow", "snappy.parquet",
                                         "plain_v2.parquet", "zstd.parquet"));

TEST_P(TableRecordReaderTest, GivesTheTextsThatAreNotEmpty) {
  const ColumnValues texts = column("text");
  TableRecordReader reader(source(GetParam()), RecordKind::kText, {});
  Record record;
  for (size_t row = 0; row < rows(); ++row) {
    if (texts.text(row).empty()) continue;
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record.text, texts.text(row));
  }
  EXPECT_FALSE(reader.next(record));
  EXPECT_EQ(reader.bytes_read(), reader.bytes_total());
}

TEST(TableRecords, RowsOfIdsEndWhereTheirMaskDoes) {
  for (const char* file : {"rows.arrow", "rows.parquet"}) {
    TableRecordReader reader(source(file), RecordKind::kIds, {.vocab_size = 250});
    Record record;
    for (int i = 0; i < 24; ++i) {
      ASSERT_TRUE(reader.next(record)) << file;
      ASSERT_EQ(record.ids.size(), static_cast<size_t>(20 - i % 3));
      ASSERT_EQ(record.labels.size(), record.ids.size());
      for (size_t t = 0; t < record.ids.size(); ++t) {
        EXPECT_EQ(record.ids[t], (7 * i + static_cast<int>(t)) % 250);
        EXPECT_EQ(record.labels[t], t < 5 ? kIgnoreIndex : record.ids[t]);
      }
    }
    EXPECT_FALSE(reader.next(record));
    TableRecordReader small(source(file), RecordKind::kIds, {.vocab_size = 100});
    expect_contains(user_error([&] {
                      while (small.next(record)) {
                      }
                    }),
                    "ids are 0 to 99");
  }
}

TEST(TableRecords, LabelsAreTheIdsOrIgnored) {
  std::string content = read_file(kTables + "rows.arrow");
  const int64_t ignored = kIgnoreIndex, other = 5;
  const size_t first = content.find(std::string(reinterpret_cast<const char*>(&ignored), 8));
  ASSERT_NE(first, std::string::npos);
  content.replace(first, 8, reinterpret_cast<const char*>(&other), 8);
  auto read = [&](bool skip) {
    TableRecordReader reader(std::make_shared<MemorySource>(content, "rows.arrow"),
                             RecordKind::kIds, {.skip_bad_lines = skip});
    int rows = 0;
    for (Record record; reader.next(record);) ++rows;
    return rows;
  };
  expect_contains(user_error([&] { read(false); }),
                  "row 0: labels[0] is 5 where input_ids[0] is 0: labels are the ids themselves");
  EXPECT_EQ(read(true), 23);
}

TEST(TableRecords, PaddingAtTheBeginningIsCutOffToo) {
  const std::string content = read_file(kTables + "rows.arrow");
  const size_t first = content.find(std::string(39, '\1') + '\0');  // the masks of two rows
  ASSERT_NE(first, std::string::npos);
  auto read = [&](size_t masked, Record& record) {
    std::string changed = content;
    changed[first + masked] = '\0';
    TableRecordReader reader(std::make_shared<MemorySource>(changed, "rows.arrow"),
                             RecordKind::kIds, {.vocab_size = 250});
    ASSERT_TRUE(reader.next(record));
  };
  Record record;
  read(0, record);
  ASSERT_EQ(record.ids.size(), 19u);
  ASSERT_EQ(record.labels.size(), 19u);
  for (size_t t = 0; t < 19; ++t) {
    EXPECT_EQ(record.ids[t], static_cast<int>(t) + 1);
    EXPECT_EQ(record.labels[t], t < 4 ? kIgnoreIndex : record.ids[t]);
  }
  expect_contains(user_error([&] { read(7, record); }),
                  "row 0: attention_mask[7] is 0 between ids whose mask is 1");
}

// As TRL writes them; columns of nulls alone are as none.
TEST(TableRecords, MasksOfTheLossStandForLabels) {
  for (const char* file : {"masks.arrow", "masks.parquet"}) {
    TableRecordReader reader(source(file), RecordKind::kIds, {});
    Record record;
    for (const int32_t first : {1, 4}) {
      ASSERT_TRUE(reader.next(record)) << file;
      EXPECT_EQ(record.ids, (std::vector<int32_t>{first, first + 1, first + 2}));
      EXPECT_EQ(record.labels,
                (std::vector<int32_t>{kIgnoreIndex, first == 1 ? 2 : kIgnoreIndex, first + 2}));
    }
    EXPECT_FALSE(reader.next(record));
  }
}

TEST(TableRecords, ColumnsOfNullsAloneAreNone) {
  for (const char* file : {"chats.arrow", "chats.parquet"}) {
    EXPECT_EQ(kind_of_table(*open_table(source(file)), "text", false), RecordKind::kChat);
    TableRecordReader reader(source(file), RecordKind::kChat, {});
    Record record;
    ASSERT_TRUE(reader.next(record)) << file;
    EXPECT_EQ(record.messages, (std::vector<Message>{{"user", "a", false},
                                                     {"assistant", "b", false},
                                                     {"user", "c", false},
                                                     {"assistant", "d"}}));
    EXPECT_FALSE(reader.next(record));
  }
}

TEST_P(TableRecordReaderTest, GoesOnFromAnyPosition) {
  TableRecordReader reader(source(GetParam()), RecordKind::kText, {});
  std::vector<std::string> texts, positions;
  Record record;
  for (;;) {
    positions.push_back(reader.position());
    if (!reader.next(record)) break;
    texts.push_back(record.text);
  }
  for (size_t i = 0; i < positions.size(); i += 1 + positions.size() / 20) {
    TableRecordReader other(source(GetParam()), RecordKind::kText, {});
    other.seek(positions[i]);
    for (size_t t = i; t < std::min(texts.size(), i + 3); ++t) {
      ASSERT_TRUE(other.next(record));
      EXPECT_EQ(record.text, texts[t]);
    }
  }
  TableRecordReader other(source(GetParam()), RecordKind::kText, {});
  EXPECT_THROW(other.seek(positions[0].substr(1)), UserError);
}

TEST(TableRecords, ConversationsAreThoseOfJson) {
  TableRecordReader reader(source("file.arrow"), RecordKind::kChat, {.skip_bad_lines = true});
  Record record;
  int64_t conversations = 0;
  while (reader.next(record)) {
    ++conversations;
    for (const Message& message : record.messages) EXPECT_FALSE(message.role.empty());
  }
  EXPECT_GT(conversations, 0);
}

TEST(TableRecords, AMissingColumnIsAnErrorWithThoseThatThereAre) {
  const std::string message = user_error([] {
    TableRecordReader(source("file.arrow"), RecordKind::kText, {.text_field = "content"});
  });
  expect_contains(message, "has no column 'content' of text; give --text_field NAME");
  expect_contains(message, "input_ids");
  expect_contains(user_error([] {
                    TableRecordReader(source("file.arrow"), RecordKind::kText,
                                      {.text_field = "input_ids"});
                  }),
                  "not text");
}

TEST(TableRecords, AreReadLikeFilesOfText) {
  const std::vector<std::filesystem::path> paths{kTables + "file.arrow",
                                                 kTables + "snappy.parquet"};
  EXPECT_EQ(detect_kind(local_entries(paths), {}), RecordKind::kIds);
  EXPECT_EQ(detect_kind(local_entries(paths), {.text_is_wanted = true}), RecordKind::kText);
  DocumentReader reader(paths, {});
  std::string text, parts;
  int64_t documents = 0, whole = 0;
  while (reader.next(text)) ++documents;
  EXPECT_EQ(reader.bytes_read(), reader.bytes_total());
  DocumentReader again(paths, {});
  std::string position;
  while (again.next_part(parts) != TextPart::kNone) {
    if (++whole == documents / 2) position = again.position();
  }
  EXPECT_EQ(whole, documents);
  DocumentReader rest(paths, {});
  rest.seek(position);
  for (whole = documents / 2; rest.next(text); ++whole) {
  }
  EXPECT_EQ(whole, documents);
}

}  // namespace
}  // namespace tessera
