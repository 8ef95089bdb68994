#include <gtest/gtest.h>

#include <vector>

#include "base/ignore_index.h"
#include "base/log.h"
#include "data/document_reader.h"
#include "data/text_record_reader.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/data/packed_text.h"

namespace tessera {
namespace {

using Ids = std::vector<int32_t>;

std::shared_ptr<MemorySource> source(std::string content) {
  return std::make_shared<MemorySource>(std::move(content), "rows.jsonl");
}

// What a record holds, as text to compare.
std::string shown(const Record& record) {
  std::string all = record.text;
  for (int32_t id : record.ids) all += cat(" ", id);
  for (int32_t id : record.labels) all += cat(" l", id);
  for (const Message& message : record.messages)
    all += cat(" ", message.role, ": ", message.content, message.learn ? "" : ", as it is");
  for (const TextSpan& span : record.spans) all += cat(" <", span.text, "|", span.learn, ">");
  return all;
}

std::vector<std::string> read_all(RecordReader& reader) {
  std::vector<std::string> records;
  for (Record record; reader.next(record);) records.push_back(shown(record));
  return records;
}

std::vector<std::string> read_all(std::string content, RecordForm form,
                                  RecordOptions options = {}) {
  TextRecordReader reader(source(std::move(content)), form, options);
  std::vector<std::string> records = read_all(reader);
  EXPECT_EQ(reader.bytes_read(), reader.bytes_total());
  return records;
}

std::string problem_of(const std::string& line, RecordForm form, RecordOptions options = {}) {
  return user_error([&] { read_all("\n" + line + "\n", form, options); });
}

TEST(RecordReader, TextOfANamedField) {
  EXPECT_EQ(read_all("{\"content\": \"a\", \"text\": 5}\n{\"content\": \"b\"}",
                     RecordForm::kJsonText, {.text_field = "content"}),
            (std::vector<std::string>{"a", "b"}));
  std::string message =
      problem_of("{\"text\": \"a\"}", RecordForm::kJsonText, {.text_field = "raw"});
  expect_contains(message, "'rows.jsonl', line 2: there is no key \"raw\"");
  expect_contains(message, "a JSON object with a string \"raw\" (--on_bad_line=skip");
}

TEST(RecordReader, NumbersOfAnySizeInOtherKeysAreIgnored) {
  const std::string content =
      R"({"id": 340282366920938463463374607431768211456, "text": "1e999 \"-99999999999999999999"})"
      "\n"
      R"({"text": "b", "other": [{"x": -1E+400}, 1e400,123456789012345678901234567890.5e-7]})";
  EXPECT_EQ(read_all(content, RecordForm::kJsonText),
            (std::vector<std::string>{"1e999 \"-99999999999999999999", "b"}));
  for (const char* number : {"1e", "1e400.", "-e400", "01e400", "99999999999999999999-", "1.e400",
                             "0099999999999999999999"}) {
    const std::string line = cat("{\"id\": [1e400, ", number, "], \"text\": \"a\"}");
    expect_contains(problem_of(line, RecordForm::kJsonText), "line 2: ");
  }
  EXPECT_EQ(detect_json_form(source("{\"id\": 1e400, \"messages\": []}")), RecordForm::kJsonChat);
}

TEST(RecordReader, WhatPythonWritesForNoNumberIsIgnoredInOtherKeys) {
  const std::string content = R"({"score": NaN, "text": "NaN -Infinity"})"
                              "\n"
                              R"({"text": "b", "other": [Infinity,{"x":-Infinity}, NaN]})";
  EXPECT_EQ(read_all(content, RecordForm::kJsonText),
            (std::vector<std::string>{"NaN -Infinity", "b"}));
  for (const char* text : {"NaN", "-Infinity"}) {
    expect_contains(problem_of(cat("{\"text\": ", text, "}"), RecordForm::kJsonText), "line 2: ");
  }
  for (const char* number : {"nan", "Infinit", "NaN1", "1NaN", "--Infinity", "trueNaN"}) {
    const std::string line = cat("{\"id\": [", number, "], \"text\": \"a\"}");
    expect_contains(problem_of(line, RecordForm::kJsonText), "line 2: ");
  }
}

TEST(RecordReader, IdsWithPaddingAndLabels) {
  const std::string content =
      R"({"input_ids": [5, 6, 7]})"
      "\n"
      R"({"input_ids": [1, 2, 3, 0, 0], "attention_mask": [1, 1, 1, 0, 0]})"
      "\n\n"
      R"({"input_ids": [1, 2, 3, 9], "attention_mask": [1, 1, 1, 0], "labels": [-100, 2, 3, 8]})"
      "\n"
      R"({"input_ids": [0, 0], "attention_mask": [0, 0]})"
      "\n"
      R"({"input_ids": []})"
      "\n"
      R"({"input_ids": [2147483647], "labels": null, "other": [[{}]]})";
  EXPECT_EQ(read_all(content, RecordForm::kJsonIds),
            (std::vector<std::string>{" 5 6 7", " 1 2 3", " 1 2 3 l-100 l2 l3", " 2147483647"}));
}

TEST(RecordReader, PaddingAtTheBeginningIsCutOffToo) {
  const std::string content =
      R"({"input_ids": [9, 9, 1, 2, 9], "attention_mask": [0, 0, 1, 1, 0]})"
      "\n"
      R"({"input_ids": [0, 1, 2], "attention_mask": [0, 1, 1], "labels": [-100, -100, 2]})";
  EXPECT_EQ(read_all(content, RecordForm::kJsonIds),
            (std::vector<std::string>{" 1 2", " 1 2 l-100 l2"}));
}

TEST(RecordReader, MasksOfTheLossStandForLabels) {
  const std::string content =
      R"({"input_ids": [1, 2, 3], "completion_mask": [0, 1, 1]})"
      "\n"
      R"({"input_ids": [1, 2, 3], "assistant_masks": [1, 1, 0], "completion_mask": [0, 1, 1]})"
      "\n"
      R"({"input_ids": [0, 1, 2], "attention_mask": [0, 1, 1], "assistant_masks": [0, 0, 1]})"
      "\n"
      R"({"input_ids": [1, 2], "completion_mask": [1, 1], "assistant_masks": null})"
      "\n"
      R"({"input_ids": [1, 2], "completion_mask": [0, 1], "labels": [1, 2]})";
  EXPECT_EQ(read_all(content, RecordForm::kJsonIds),
            (std::vector<std::string>{" 1 2 3 l-100 l2 l3", " 1 2 3 l-100 l2 l-100",
                                      " 1 2 l-100 l2", " 1 2 l1 l2", " 1 2 l1 l2"}));
}

TEST(RecordReader, OfAKeyThatStandsTwiceTheLastCounts) {
  EXPECT_EQ(read_all(R"({"text": 5, "text": "b"})", RecordForm::kJsonText),
            std::vector<std::string>{"b"});
  EXPECT_EQ(read_all(R"({"input_ids": [1], "input_ids": [2, 3]})", RecordForm::kJsonIds),
            std::vector<std::string>{" 2 3"});
}

TEST(RecordReader, BrokenRowsOfIdsSayWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"text": "a"})", "there is no key \"input_ids\""},
      {R"({"input_ids": 5})", "\"input_ids\" is not an array"},
      {R"({"input_ids": [1, 2.5]})", "input_ids[1] is not an integer"},
      {R"({"input_ids": [1, 99999999999999999999]})", "input_ids[1] is not an integer"},
      {R"({"input_ids": [1, "2"]})", "input_ids[1] is not an integer"},
      {R"({"input_ids": [3, -1]})", "input_ids[1] is -1, ids are 0 to 99"},
      {R"({"input_ids": [100]})", "input_ids[0] is 100, ids are 0 to 99"},
      {R"({"input_ids": [1, 2], "attention_mask": [1]})",
       "attention_mask has 1 elements, input_ids 2"},
      {R"({"input_ids": [1, 2], "attention_mask": [1, true]})",
       "attention_mask[1] is neither 0 nor 1"},
      {R"({"input_ids": [1, 2], "attention_mask": [1, 2]})",
       "attention_mask[1] is neither 0 nor 1"},
      {R"({"input_ids": [1, 2, 3], "attention_mask": [1, 0, 1]})",
       "attention_mask[1] is 0 between ids whose mask is 1"},
      {R"({"input_ids": [1, 2], "completion_mask": [1]})",
       "completion_mask has 1 elements, input_ids 2"},
      {R"({"input_ids": [1, 2], "assistant_masks": [1, -1]})",
       "assistant_masks[1] is neither 0 nor 1"},
      {R"({"input_ids": [1], "attention_mask": null})", "\"attention_mask\" is not an array"},
      {R"({"input_ids": [1, 2], "labels": [1]})", "\"labels\" has 1 elements, \"input_ids\" 2"},
      {R"({"input_ids": [1, 2], "labels": [1, -1]})", "labels[1] is -1, labels are ids or -100"},
      {R"({"input_ids": [1, 2], "labels": [1, 100]})", "labels[1] is 100"},
      {R"({"input_ids": [1, 2, 3], "labels": [2, 3, -100]})",
       "labels[0] is 2 where input_ids[0] is 1: labels are the ids themselves, not shifted, or "
       "-100"},
      {R"({"input_ids": [1, 2], "attention_mask": [1, 1], "labels": [0, 2]})",
       "labels[0] is 0 where input_ids[0] is 1"},
  };
  for (auto [line, expected] : cases) {
    std::string message = problem_of(line, RecordForm::kJsonIds, {.vocab_size = 100});
    expect_contains(message, "'rows.jsonl', line 2: ");
    expect_contains(message, expected);
    expect_contains(message, "an array \"input_ids\" (--on_bad_line=skip");
  }
}

TEST(RecordReader, Conversations) {
  const std::string content =
      R"({"messages": [{"role": "user", "content": "hi\n"}, {"role": "assistant", "content": "", "tool_calls": null}]})"
      "\n"
      R"({"prompt": "1+1=", "completion": "2", "tools": []})"
      "\n"
      R"({"messages": []})"
      "\n"
      R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"content": "b", "role": "assistant"}]})"
      "\n"
      R"({"messages": null, "prompt": "a", "completion": "b"})";
  EXPECT_EQ(read_all(content, RecordForm::kJsonChat),
            (std::vector<std::string>{" user: hi\n assistant: ", " <1+1=|false> <2|true>",
                                      " user: a, as it is assistant: b", " <a|false> <b|true>"}));
  const std::pair<const char*, const char*> cases[] = {
      {R"({"text": "a"})", "no key \"messages\", nor both \"prompt\" and \"completion\""},
      {R"({"prompt": "a"})", "no key \"messages\""},
      {R"({"prompt": "a", "completion": []})", "neither two strings nor two arrays"},
      {R"({"messages": {}})", "\"messages\" is not an array"},
      {R"({"messages": [5]})", "messages[0] is not an object"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"content": "a"}]})",
       "messages[1] has no string \"role\""},
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]})",
       "messages[0] has no string \"content\""},
      {R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]})",
       "messages[0] has \"tool_calls\", which are not supported"},
      {R"({"messages": [], "tools": [{}]})", "\"tools\" are not supported"},
      {R"({"messages": [{"role": "user", "content": "\u0000"}]})",
       "\"messages[0].content\" holds a zero byte"},
      {R"({"prompt": "\u0000", "completion": ""})", "\"prompt\" holds a zero byte"},
  };
  for (auto [line, expected] : cases) {
    expect_contains(problem_of(line, RecordForm::kJsonChat), expected);
  }
}

TEST(RecordReader, BadLinesOfAnyFormCanBeSkipped) {
  TextRecordReader reader(source("{\"input_ids\": [1, -1]}\n{\"input_ids\": [7]}\n[]\n"),
                          RecordForm::kJsonIds, {.skip_bad_lines = true});
  testing::internal::CaptureStderr();
  EXPECT_EQ(read_all(reader), std::vector<std::string>{" 7"});
  expect_contains(testing::internal::GetCapturedStderr(), "'rows.jsonl', line 1: input_ids[1]");
  EXPECT_EQ(reader.bad_records(), 2);
}

TEST(RecordReader, AnEmptyListOfToolsIsNone) {
  EXPECT_EQ(read_all(R"({"tools": [], "messages": [{"role": "user", "content": "hi", )"
                     R"("tool_calls": []}]})",
                     RecordForm::kJsonChat)
                .size(),
            1u);
  for (const char* line :
       {R"({"tools": {}, "messages": []})", R"({"tools": [{}], "prompt": [], "completion": []})"})
    expect_contains(problem_of(line, RecordForm::kJsonChat), "\"tools\" are not supported");
}

TEST(RecordReader, DeepNestingIsAnError) {
  std::string deep = "{\"input_ids\": " + std::string(2000000, '[');
  expect_contains(problem_of(deep, RecordForm::kJsonIds), "line 2: ");
}

TEST(RecordReader, TheFirstWholeLineTellsTheForm) {
  auto form = [](std::string content) { return detect_json_form(source(std::move(content))); };
  EXPECT_EQ(form("\xef\xbb\xbf{\"text\": \"\", \"input_ids\": [1]}"), RecordForm::kJsonIds);
  EXPECT_EQ(form("\r\n  \n{\"messages\": []}\n{\"input_ids\": []}\n"), RecordForm::kJsonChat);
  EXPECT_EQ(form(zstd("{\"prompt\": \"\", \"completion\": 5}\n")), RecordForm::kJsonChat);
  EXPECT_EQ(form("{\"messages\": null, \"text\": \"\"}"), RecordForm::kJsonText);
  EXPECT_EQ(form("{\"prompt\": \"\"}\n{\"messages\": []}"), RecordForm::kJsonText);
  EXPECT_EQ(form("broken"), std::nullopt);
  EXPECT_EQ(form(""), std::nullopt);
  EXPECT_EQ(form("broken\n\n{\"input_ids\": [1]}\n"), RecordForm::kJsonIds);
  EXPECT_EQ(form("{\"text\": \"" + std::string(5 << 20, 'a') + "\"}"), RecordForm::kJsonText);
  expect_contains(user_error([&] { form(zstd(std::string(65 << 20, ' '))); }),
                  "longer than 64.0 MiB");
}

// Rows of every form, long and short, blank lines and broken ones among them.
std::string rows(RecordForm form) {
  std::string all = form == RecordForm::kPlainText ? "" : "\xef\xbb\xbf";
  for (uint64_t i = 0; i < 300; ++i) {
    const auto size = static_cast<size_t>(random_below(9, 9, i, i % 50 == 7 ? 400000 : 3000));
    std::string text = i % 10 == 3 ? "" : noise(size);
    for (char& c : text)
      if (c == '"' || c == '\\') c = ' ';
    switch (form) {
      case RecordForm::kPlainText: all += text + "\n<|endoftext|>\n"; break;
      case RecordForm::kJsonText: all += "{\"text\": \"" + text + "\"}\r\n\n"; break;
      case RecordForm::kJsonIds: all += cat("{\"input_ids\": [", i, ", ", size, "]}\n"); break;
      case RecordForm::kJsonChat:
        all += "{\"prompt\": \"" + text + "\", \"completion\": \"b\"}\n";
        break;
    }
    if (i % 7 == 0 && form != RecordForm::kPlainText) all += "broken\n";
  }
  return all;
}

TEST(RecordReader, PositionsAreThoseOfTheNextRecord) {
  set_log_level(LogLevel::kError);
  for (RecordForm form : {RecordForm::kPlainText, RecordForm::kJsonText, RecordForm::kJsonIds,
                          RecordForm::kJsonChat}) {
    const std::string text = rows(form);
    for (const std::string& content : {text, gzip(text), zstd(text), xz(text, 100000)}) {
      auto data = source(content);
      const RecordOptions options{.skip_bad_lines = true};
      TextRecordReader reader(data, form, options), other(data, form, options);
      const std::vector<std::string> all = read_all(reader);
      ASSERT_GT(all.size(), 200u);
      reader.seek(other.position());
      for (size_t i = 0; i < all.size(); ++i) {
        const std::string position = reader.position();
        Record record, again;
        ASSERT_TRUE(reader.next(record));
        ASSERT_EQ(shown(record), all[i]);
        if (i % 37 > 1) continue;
        other.seek(position);
        ASSERT_EQ(other.position(), position);
        ASSERT_TRUE(other.next(again));
        ASSERT_EQ(shown(again), all[i]);
        ASSERT_EQ(other.next(again), i + 1 < all.size());
      }
      other.seek(reader.position());
      Record record;
      EXPECT_FALSE(other.next(record));
    }
  }
  set_log_level(LogLevel::kInfo);
}

TEST(RecordReader, LinesKeepTheirNumbersBehindAPosition) {
  auto data = source(gzip("{\"text\": \"a\"}\n\n{\"text\": \"b\"}\n{\"text\": 3}\n"));
  TextRecordReader first(data, RecordForm::kJsonText), second(data, RecordForm::kJsonText);
  Record record;
  first.next(record);
  first.next(record);
  second.seek(first.position());
  expect_contains(user_error([&] { second.next(record); }), "'rows.jsonl', line 4: ");
  TextRecordReader ids(data, RecordForm::kJsonIds);
  expect_contains(user_error([&] { ids.seek(first.position()); }), "the rows were of another form");
  expect_contains(user_error([&] { ids.seek(""); }), "it is none");
}

TEST(RecordReader, DocumentsOfManyFilesGoOnInsideADocument) {
  ScratchDirectory directory;
  const std::vector<std::filesystem::path> files{
      directory.write("a.txt", gzip(prose(3 << 20) + "\n<|endoftext|>\nend")),
      directory.write("b.jsonl", "{\"body\": \"one\"}\n{\"body\": \"two\"}\n"),
      directory.write("c.txt", xz(prose(100))), directory.write("d.txt", "")};
  const DocumentReaderOptions options{.text_field = "body"};
  std::vector<std::pair<std::string, TextPart>> parts;
  std::vector<std::string> positions;
  DocumentReader reader(files, options);
  std::string text;
  do {
    positions.push_back(reader.position());
    const TextPart part = reader.next_part(text);
    parts.emplace_back(text, part);
  } while (parts.back().second != TextPart::kNone);
  positions.push_back(reader.position());
  ASSERT_GE(parts.size(), 8u);
  for (size_t i = 0; i < positions.size(); ++i) {
    DocumentReader other(files, options);
    other.seek(positions[i]);
    for (size_t k = i; k < parts.size(); ++k) {
      EXPECT_EQ(other.next_part(text), parts[k].second);
      ASSERT_TRUE(text == parts[k].first) << i << " " << k;
    }
    EXPECT_EQ(other.next_part(text), TextPart::kNone);
    EXPECT_EQ(other.bytes_read(), other.bytes_total());
  }
  DocumentReader fewer(std::vector{files[0]}, options);
  expect_contains(user_error([&] { fewer.seek(positions[0]); }), "another number of files");
}

}  // namespace
}  // namespace tessera
