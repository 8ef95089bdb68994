#include "data/document_reader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/dataset_files.h"
#include "tables/table.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/data/packed_text.h"
#include "tests/tables/parquet_writer.h"

namespace tessera {
namespace {

using Documents = std::vector<std::string>;

Documents read_all(std::vector<std::filesystem::path> files, DocumentReaderOptions options = {}) {
  DocumentReader reader(std::move(files), options);
  Documents documents;
  for (std::string document; reader.next(document);) documents.push_back(document);
  EXPECT_EQ(reader.bytes_read(), reader.bytes_total());
  return documents;
}

class DocumentReaderTest : public testing::Test {
 protected:
  ScratchDirectory directory_;
};

TEST_F(DocumentReaderTest, PlainFileIsOneDocumentByteByByte) {
  const std::string text = "first\r\n\xff\xfe broken UTF-8 \xc3\n\nlast, no line end";
  EXPECT_EQ(read_all({directory_.write("a.txt", text)}), Documents{text});
}

TEST_F(DocumentReaderTest, LinesOfEndOfTextSeparateDocuments) {
  auto file = directory_.write("a.txt",
                               "<|endoftext|>\none\n<|endoftext|>\n<|endoftext|>\r\n"
                               " <|endoftext|>\nx<|endoftext|>\n<|endoftext|> \n<|endoftext|>\n"
                               "\n<|endoftext|>\nend\n<|endoftext|>");
  EXPECT_EQ(
      read_all({file}),
      (Documents{"one\n", " <|endoftext|>\nx<|endoftext|>\n<|endoftext|> \n", "\n", "end\n"}));
}

TEST_F(DocumentReaderTest, TablesOfSeparatedValuesAreRefused) {
  for (const char* name : {"a.csv", "a.CSV.gz", "b.tsv", "train.tsv.zst"}) {
    expect_contains(user_error([&] { read_all({directory_.write(name, "id,text\n1,a\n")}); }),
                    "write it as Parquet or JSON lines");
  }
  EXPECT_EQ(read_all({directory_.write("csv", "a"), directory_.write("csv.gz", "b"),
                      directory_.write("a.csv.txt", "c")}),
            (Documents{"a", "b", "c"}));
}

TEST_F(DocumentReaderTest, FilesAreReadInTheGivenOrderAndEmptyOnesGiveNothing) {
  auto b = directory_.write("b", "b"), a = directory_.write("a", "a"),
       none = directory_.write("c", "");
  EXPECT_EQ(read_all({b, none, a}), (Documents{"b", "a"}));
  EXPECT_EQ(read_all({none}), Documents{});
  EXPECT_EQ(read_all({}), Documents{});
}

TEST_F(DocumentReaderTest, GzipIsRecognisedByContentAndMayHaveManyMembers) {
  const std::string big = noise(1 << 20), small = "caf\xc3\xa9\n";
  auto file = directory_.write(
      "no_suffix", gzip(small) + gzip("") + gzip(big) + gzip(small) + std::string(300000, '\0'));
  EXPECT_EQ(read_all({file}), Documents{small + big + small});
  EXPECT_EQ(read_all({directory_.write("plain.gz", "not packed")}), Documents{"not packed"});
  EXPECT_EQ(read_all({directory_.write("one_byte.gz", "\x1f")}), Documents{"\x1f"});
  EXPECT_EQ(read_all({directory_.write("empty.gz", gzip(""))}), Documents{});
}

TEST_F(DocumentReaderTest, GzipThatUnpacksToFarMoreThanItsSizeIsStreamed) {
  std::string text;
  for (int i = 0; i < 40000; ++i) text += "the same line again and again, the same line\n";
  EXPECT_EQ(read_all({directory_.write("a.gz", gzip(text))}), Documents{text});
}

TEST_F(DocumentReaderTest, TruncatedGzipIsAnErrorWhereverItIsCut) {
  const std::string packed = gzip(noise(1000));
  for (size_t size : {size_t{2}, size_t{9}, size_t{10}, size_t{11}, packed.size() / 2,
                      packed.size() - 8, packed.size() - 1}) {
    auto file = directory_.write("cut.gz", packed.substr(0, size));
    std::string message = user_error([&] { read_all({file}); });
    expect_contains(message, "cut.gz' is truncated: it ends inside gzip member 1");
  }
  auto second = directory_.write("cut2.gz", packed + packed.substr(0, 100));
  expect_contains(user_error([&] { read_all({second}); }), "inside gzip member 2");
}

TEST_F(DocumentReaderTest, DamagedGzipIsAnErrorThatNamesTheFile) {
  std::string packed = gzip(noise(100000));
  packed[packed.size() - 6] ^= 1;  // the checksum
  auto file = directory_.write("bad.gz", packed);
  expect_contains(user_error([&] { read_all({file}); }), "bad.gz' is damaged");
  auto garbage = directory_.write("tail.gz", gzip("text") + "garbage");
  expect_contains(user_error([&] { read_all({garbage}); }), "tail.gz' is damaged: gzip member 2");
}

TEST_F(DocumentReaderTest, ZeroBytesInPlainTextLookBinary) {
  std::string text = noise(600000);
  text[500001] = '\0';
  for (const auto& file : {directory_.write("a.bin", text), directory_.write("a.gz", gzip(text))}) {
    std::string message = user_error([&] { read_all({file}); });
    expect_contains(message, file.string());
    expect_contains(message, "looks binary: there is a zero byte at offset 500001");
  }
}

TEST_F(DocumentReaderTest, PartsMakeUpTheDocuments) {
  const std::string separator = "<|endoftext|>\n", line(3 << 20, 'x');
  const auto part = static_cast<size_t>(kPartBytes);
  // Lines longer than a part, documents that end where a part does, separators that are none.
  std::vector<std::filesystem::path> files{
      directory_.write("a", line + "\nend\n" + separator + separator + line),
      directory_.write("b", separator),
      directory_.write("c", std::string(part - 1, 'y') + "\n"),
      directory_.write("d", std::string(part - 1, 'y') + "\n" + separator + "tail"),
      directory_.write("e", line + separator + "<|endoftext|> \n" + line + "\n<|endoftext|>"),
      directory_.write("f", std::string(part - 5, 'y') + "\n" + separator + "<|endoftext|>"),
      directory_.write("g.json", R"({"text": "of JSON lines"})"),
      directory_.write("h", "")};
  Documents joined(1);
  DocumentReader reader(files);
  std::string text = "old";
  for (TextPart read; (read = reader.next_part(text)) != TextPart::kNone;) {
    EXPECT_LE(text.size(), part + (size_t{256} << 10));
    joined.back() += text;
    if (read == TextPart::kLast) joined.emplace_back();
  }
  EXPECT_EQ(joined.back(), "");
  joined.pop_back();
  EXPECT_EQ(joined, read_all(files));
  EXPECT_EQ(joined.size(), 8u);
}

TEST_F(DocumentReaderTest, MissingAndUnreadableFilesAreReportedAtOnce) {
  expect_contains(user_error([&] { DocumentReader(std::vector{directory_ / "none"}); }),
                  "none': No such file or directory");
  expect_contains(user_error([&] { DocumentReader(std::vector{directory_.path()}); }),
                  "it is a directory");
  auto file = directory_.write("secret", "x");
  std::filesystem::permissions(file, std::filesystem::perms::none);
  if (::access(file.c_str(), R_OK) == 0) GTEST_SKIP() << "this user may read everything";
  expect_contains(user_error([&] { read_all({file}); }), "secret': Permission denied");
}

TEST_F(DocumentReaderTest, JsonLines) {
  const std::string content =
      "\xef\xbb\xbf{\"text\": \"one\\n\\u00e9\\ud83d\\ude00\", \"url\": \"u\"}\r\n"
      "\r\n"
      "{\"meta\": {\"text\": 5}, \"text\": \"two\"}\n"
      "   \n"
      "{\"text\": \"\"}\n"
      "{\"text\": \"a byte and <|endoftext|>\"}\n"
      "{\"text\": \"last\"}";
  const Documents expected{"one\n\xc3\xa9\xf0\x9f\x98\x80", "two", "a byte and <|endoftext|>",
                           "last"};
  EXPECT_EQ(read_all({directory_.write("a.jsonl", content)}), expected);
  EXPECT_EQ(read_all({directory_.write("c4-train.00000-of-01024.json.gz", gzip(content))}),
            expected);
}

TEST_F(DocumentReaderTest, NamesTellJsonLinesAndAWarningThoseOfOtherNames) {
  for (const char* name : {"a.json", "a.JSONL", "a.b.ndjson", "A.NdJson.gz", "/x/a.json-00000",
                           "x.json/part-0", "/x.JSONL/y/0.gz", "x.ndjson/part-0"})
    EXPECT_TRUE(named_as_json_lines(name)) << name;
  for (const char* name : {"json", "a.jl", "a.txt", "ajson.gz", "", "my.json_texts/a.txt",
                           "/x.json.d/part-0", "json/a", "/"})
    EXPECT_FALSE(named_as_json_lines(name)) << name;
  auto log_of = [&](const char* name, const std::string& content, bool wanted = false) {
    const std::vector files{directory_.write(name, content)};
    testing::internal::CaptureStderr();
    EXPECT_EQ(detect_kind(local_entries(files), {.text_field = "raw", .text_is_wanted = wanted}),
              RecordKind::kText);
    return testing::internal::GetCapturedStderr();
  };
  const char* const warned = "' begins with a line of JSON and is read as plain text";
  expect_contains(log_of("a.txt", "\xef\xbb\xbf\n {\"raw\": \"x\"}\r\nmore"), cat("a.txt", warned));
  expect_contains(log_of("b", gzip("{\"id\": 1e400, \"prompt\": \"x\"}")), cat("b", warned));
  EXPECT_EQ(log_of("c", "{\"other\": \"x\"}\n"), "");
  EXPECT_EQ(log_of("d", "text\n{\"raw\": \"x\"}\n"), "");
  EXPECT_EQ(log_of("e", "{\"raw\": " + std::string(1 << 20, ' ')), "");
  EXPECT_EQ(log_of("f", ""), "");
  const char* const ignored = "' is plain text, where --text_field raw has no effect";
  expect_contains(log_of("g.txt", "text\n", true), cat("g.txt", ignored));
  EXPECT_EQ(log_of("g.txt", "text\n", true), "") << "once";
  EXPECT_EQ(log_of("h.jsonl", "{\"raw\": \"x\"}\n", true), "");
  const std::vector beside{directory_ / "h.jsonl", directory_.write("i.txt", "text\n")};
  testing::internal::CaptureStderr();
  detect_kind(local_entries(beside), {.text_field = "raw", .text_is_wanted = true});
  expect_contains(testing::internal::GetCapturedStderr(), cat("i.txt", ignored));
}

TEST_F(DocumentReaderTest, AnEmptyFileDecidesNothing) {
  const std::vector paths{directory_.write("0.txt", ""), directory_.write("1.json", ""),
                          directory_.write("2.jsonl", R"({"messages": []})")};
  const auto files = local_entries(paths);
  EXPECT_EQ(detect_kind(files, {}), RecordKind::kChat);
  DocumentReader reader(files, {.kind = RecordKind::kChat});
  Record record;
  EXPECT_FALSE(reader.next(record));
}

TEST_F(DocumentReaderTest, AFieldThatIsAskedForIsText) {
  for (const char* other :
       {R"("messages": [])", R"("prompt": "", "completion": "")", R"("input_ids": [1])"}) {
    const std::vector paths{directory_.write("a.jsonl", cat(R"({"text": "x", )", other, "}\n"))};
    const auto files = local_entries(paths);
    EXPECT_NE(detect_kind(files, {}), RecordKind::kText);
    EXPECT_EQ(detect_kind(files, {.text_is_wanted = true}), RecordKind::kText);
    EXPECT_NE(detect_kind(files, {.text_field = "y", .text_is_wanted = true}), RecordKind::kText);
  }
}

TEST_F(DocumentReaderTest, JsonLinesOfManyMegabytes) {
  const std::string text = noise(9 << 20);
  std::string escaped;
  for (char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  const std::string content = "{\"text\":\"" + escaped + "\"}\n{\"text\":\"x\"}\n";
  EXPECT_EQ(read_all({directory_.write("a.json", content)}), (Documents{text, "x"}));
}

TEST_F(DocumentReaderTest, BrokenJsonLineIsAnErrorWithFileAndLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"text\": \"a\"", "line 3"},
      {"not json", "line 3"},
      {"[1, 2]", "line 3: not an object"},
      {"\"text\"", "line 3: not an object"},
      {"{\"Text\": \"a\"}", "line 3: there is no key \"text\""},
      {"{\"text\": 7}", "line 3: \"text\" is not a string"},
      {"{\"text\": null}", "line 3: \"text\" is not a string"},
      {"{\"text\": \"a\\u0000b\"}", "line 3: \"text\" holds a zero byte"},
      {"{\"text\": \"\xff\"}", "line 3"},
      {"{\"text\": \"a\"} {\"text\": \"b\"}", "line 3"},
  };
  for (auto [line, expected] : cases) {
    auto file =
        directory_.write("a.jsonl", cat("{\"text\": \"ok\"}\n\n", line, "\n{\"text\": \"ok\"}\n"));
    std::string message = user_error([&] { read_all({file}); });
    expect_contains(message, cat(file.string(), "', ", expected));
    expect_contains(message, "--on_bad_line=skip");
  }
}

TEST_F(DocumentReaderTest, BrokenJsonLinesCanBeSkippedWithOneWarning) {
  std::string content = "broken\n{\"text\": \"a\"}\n{\"text\": 1}\n" + std::string(1, '\0') +
                        "\n{\"text\": \"b\"}\n{\"text\": \"cut";
  DocumentReader reader(std::vector{directory_.write("a.jsonl", content)},
                        {.skip_bad_lines = true});
  Documents documents;
  testing::internal::CaptureStderr();
  for (std::string document; reader.next(document);) documents.push_back(document);
  std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(documents, (Documents{"a", "b"}));
  EXPECT_EQ(reader.bad_lines(), 4);
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
  expect_contains(log, "a.jsonl', line 1");
}

TEST_F(DocumentReaderTest, AnEndlessJsonLineIsAnErrorInBoundedMemory) {
  // 65 MiB of blanks in one line, 66 KB packed.
  const std::string member = gzip(std::string(1 << 20, ' '));
  std::string packed;
  for (int i = 0; i < 65; ++i) packed += member;
  // Broken as any other is where those are skipped.
  for (const char* last : {"", "\n", "\n{\"text\": \"b\"}\n"}) {
    const auto file =
        directory_.write("skipped.json.gz", gzip("{\"text\": \"a\"}\n") + packed + gzip(cat(last)));
    DocumentReader reader(std::vector{file}, {.skip_bad_lines = true});
    std::vector<std::string> documents;
    for (std::string document; reader.next(document);) documents.push_back(document);
    EXPECT_EQ(documents.size(), *last && last[1] ? 2u : 1u);
    EXPECT_EQ(reader.bad_lines(), 1);
  }
  const auto first = local_entries(
      std::vector{directory_.write("first.json.gz", packed + gzip("\n{\"messages\": []}\n"))});
  EXPECT_EQ(detect_kind(first, {.skip_bad_lines = true}), RecordKind::kChat);
  std::string message = user_error([&] { read_all({directory_.write("bomb.json.gz", packed)}); });
  expect_contains(message, "bomb.json.gz', line 1: longer than 64.0 MiB");
}

TEST_F(DocumentReaderTest, TheHeadOfAFileSaysWhatReadingItTakes) {
  constexpr int64_t kMiB = 1 << 20;
  // The second file beside one that is `larger`, if only to the list of files.
  auto taken = [&](const std::string& name, const std::string& content, uint64_t larger = 0) {
    std::vector<RemoteEntry> files = local_entries(
        std::vector{directory_.write("0-empty", ""), directory_.write(name, content)});
    files.push_back({.path = "larger", .size = larger});
    return reading_bytes(files, {});
  };
  const std::string text(100'000, 'x');
  EXPECT_EQ(taken("a.txt", text), 0);
  EXPECT_EQ(taken("a.txt.gz", gzip(text)), 0);
  for (int window : {23, 26}) {
    const int64_t bytes = int64_t{1} << window;
    const std::string by_xz = xz(text, SIZE_MAX, uint32_t{1} << window);
    const std::string by_zstd = zstd_skippable("i") + zstd(text, 3, window);
    for (int64_t of_either :
         {taken("a.txt.xz", by_xz, bytes), taken("a.txt.zst", by_zstd, bytes)}) {
      EXPECT_GE(of_either, bytes);
      EXPECT_LT(of_either, bytes + kMiB);
    }
    // Small files fill no such window.
    for (int64_t of_small : {taken("a.txt.xz", by_xz), taken("a.txt.zst", by_zstd)}) {
      EXPECT_GE(of_small, kMiB);
      EXPECT_LT(of_small, 2 * kMiB);
    }
  }
  const std::filesystem::path tables =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/goldens/tables";
  auto of_chats = [&](const char* name) {
    return reading_bytes(local_entries(std::vector{tables / name}), {.kind = RecordKind::kChat});
  };
  EXPECT_EQ(of_chats("chats.arrow"), kTableBatchBytes);
  EXPECT_GT(of_chats("chats.parquet"), kTableBatchBytes);
  EXPECT_LT(of_chats("chats.parquet"), kTableBatchBytes + kMiB);
  // Parquet is unpacked by pages, of whatever size.
  const std::string page = little_endian<uint32_t>({8 * kMiB}) + std::string(8 * kMiB, 'x');
  const auto column = leaf_element("text", kRequiredField, 6);
  EXPECT_EQ(taken("a.parquet", parquet_file({column}, 1, 1, 1, data_page(1, page))),
            kTableBatchBytes + 8 * kMiB + 4);
}

}  // namespace
}  // namespace tessera
