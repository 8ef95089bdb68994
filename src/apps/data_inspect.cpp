#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>

#include "apps/data_command.h"
#include "apps/data_input.h"
#include "apps/named_models.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/ignore_index.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/text.h"
#include "data/document_statistics.h"
#include "data/prepared_dataset.h"
#include "data/special_names.h"
#include "data/token_cache_format.h"
#include "data/token_file.h"
#include "remote/url.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSampleBytes = 300, kSampleTokens = 80;
constexpr int64_t kReadTokens = 1 << 16;

std::string line(std::string_view label, const std::string& text) {
  return cat(label, std::string(14 - std::min<size_t>(13, label.size()), ' '), text, "\n");
}

std::string percent(double share) { return cat(format("%.1f", 100 * share), " %"); }

std::string count_of(int64_t n, const char* what) { return cat(n, " ", what, n == 1 ? "" : "s"); }

std::string lengths_text(const LengthHistogram& lengths, const char* unit) {
  std::string text =
      line("lengths", cat("mean ",
                          format("%.1f", static_cast<double>(lengths.total()) /
                                             static_cast<double>(lengths.count())),
                          " ", unit, ", from ", lengths.least(), " to ", lengths.largest()));
  std::string quantiles;
  for (double share : {0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99}) {
    quantiles += cat(quantiles.empty() ? "" : ", ", format("%.0f", 100 * share),
                     " %: ", lengths.quantile(share));
  }
  text += line("quantiles", quantiles);
  const std::vector<int64_t> counts = lengths.doublings();
  const int64_t most = std::ranges::max(counts);
  const auto first = static_cast<size_t>(
      std::ranges::find_if(counts, [](int64_t n) { return n > 0; }) - counts.begin());
  for (size_t k = first; k < counts.size(); ++k) {
    const int64_t low = k == 0 ? 0 : int64_t{1} << (k - 1), high = (int64_t{1} << k) - 1;
    const auto width = static_cast<size_t>((50 * counts[k] + most - 1) / most);
    text +=
        cat(format("%12lld - %-12lld |", static_cast<long long>(low), static_cast<long long>(high)),
            std::string(width, '#'), counts[k] > 0 ? cat(" ", counts[k]) : "", "\n");
  }
  return text;
}

std::string packing_text(const PackingStatistics& packing) {
  return cat("at a context of ", packing.context(), " tokens\n",
             line("  windows", cat(packing.packed_windows(), ", joined and cut")),
             line("  best fit",
                  cat(packing.best_fit_windows(), " windows, ", percent(packing.best_fit_padding()),
                      " padding; ", count_of(packing.cut_documents(), "document"),
                      packing.cut_documents() == 1 ? " is" : " are", " longer and cut")),
             line("  rows", cat("one a document: ", percent(packing.row_padding()), " padding, ",
                                percent(packing.row_loss()), " of the tokens cut off")));
}

// For a terminal: one line, without control characters.
std::string shown(std::string_view text) {
  std::string result;
  for (char c : text.substr(0, kSampleBytes)) {
    if (c == '\n')
      result += "\\n";
    else
      result += static_cast<unsigned char>(c) < 32 || c == 127 ? '.' : c;
  }
  return result;
}

std::string statistics_text(const DocumentStatistics& statistics, const Tokenizer* tokenizer,
                            const char* unit) {
  const LengthHistogram& lengths = statistics.lengths();
  if (lengths.count() == 0) return line("documents", "none");
  std::string text = line("documents", cat(lengths.count()));
  const bool tokens = statistics.packing().has_value();
  if (tokens) {
    text += line("tokens", cat(lengths.total(), ", the largest id is ", statistics.largest_id()));
    const double learned =
        1 - static_cast<double>(statistics.not_learned()) / static_cast<double>(lengths.total());
    text += line("learned", statistics.not_learned() == 0 ? "all tokens" : percent(learned));
  }
  text += line("copies", cat(statistics.duplicates().exact() ? "" : "about ",
                             percent(statistics.duplicates().share()),
                             " of the documents are copies of another"));
  text += lengths_text(lengths, unit);
  if (tokens) text += packing_text(*statistics.packing());
  for (const DocumentStatistics::Sample& sample : statistics.samples()) {
    text += cat("document ", sample.document, ", ", sample.length, " ", unit, ": ");
    if (!sample.ids.empty())
      text += tokenizer ? shown(decode_with_names(*tokenizer, sample.ids)) : join(sample.ids, " ");
    else
      text += shown(sample.text);
    text += "\n";
  }
  return text;
}

// A line every few seconds.
class InspectionLines {
 public:
  void show(int64_t done, int64_t total) {
    check_interruption();
    const double now = monotonic_seconds();
    if (now - shown_ < 5) return;
    shown_ = now;
    const double share =
        static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total));
    TESSERA_INFO(cat("Reading: ", format("%.0f", 100 * share), "%, left ",
                     format_duration(share > 0 ? (now - begin_) * (1 - share) / share : -1)));
  }

 private:
  double begin_ = monotonic_seconds(), shown_ = begin_;
};

DocumentStatistics statistics_of(const RunConfig& config, bool tokens) {
  return {tokens ? config.max_context_width : 0, static_cast<size_t>(config.samples),
          tokens ? kSampleTokens : kSampleBytes};
}

// Reads all tokens; `ends(id)`: whether one is the last of its document, where nothing else says
// so.
std::string inspect_tokens(TokenView tokens, const DocumentView* documents,
                           const std::function<bool(int32_t)>& ends, const RunConfig& config,
                           const Tokenizer* tokenizer) {
  DocumentStatistics statistics = statistics_of(config, true);
  InspectionLines lines;
  std::vector<int32_t> ids(kReadTokens), targets(kReadTokens);
  auto read = [&](int64_t begin, int64_t end, const auto& take) {
    for (; begin < end; begin += kReadTokens) {
      lines.show(begin, tokens.count());
      const auto size = static_cast<size_t>(std::min(kReadTokens, end - begin));
      const std::span in(ids.data(), size), out(targets.data(), size);
      tokens.copy(begin, in);
      tokens.copy_targets(begin, out);
      take(in, out);
    }
  };
  if (documents) {
    documents->for_each([&](TokenRange range) {
      read(range.begin, range.end, [&](auto in, auto out) { statistics.add_tokens(in, out); });
      statistics.end_document();
    });
  } else {
    read(0, tokens.count(), [&](std::span<const int32_t> in, std::span<const int32_t> out) {
      size_t begin = 0;
      for (size_t i = 0; i < in.size(); ++i) {
        if (!ends(in[i])) continue;
        statistics.add_tokens(in.subspan(begin, i + 1 - begin), out.subspan(begin, i + 1 - begin));
        statistics.end_document();
        begin = i + 1;
      }
      statistics.add_tokens(in.subspan(begin), out.subspan(begin));
    });
    statistics.end_document();
  }
  statistics.finish();
  return statistics_text(statistics, tokenizer, "tokens");
}

std::string inspect_prepared(const fs::path& directory, const RunConfig& config,
                             const Tokenizer* tokenizer) {
  const PreparedManifest manifest = read_prepared_manifest(directory);
  if (tokenizer && tokenizer->fingerprint() != manifest.tokenizer_fingerprint)
    TESSERA_WARN("the data were not prepared with this --tokenizer");
  std::string text =
      line("form", cat("prepared data", manifest.complete ? ""
                                                          : ", not complete: the same command of "
                                                            "data prepare goes on with it"));
  text += line("tokenizer", cat(manifest.tokenizer, "; vocabulary of ", manifest.vocab_size));
  if (manifest.window > 0) text += line("rows", cat("of ", manifest.window, " tokens"));
  text += line("sources", cat(std::ssize(manifest.sources) + manifest.more_sources));
  for (bool validation : {false, true}) {
    std::vector<PreparedShard> shards;
    std::ranges::copy_if(manifest.shards, std::back_inserter(shards),
                         [&](const auto& shard) { return shard.validation == validation; });
    if (shards.empty()) continue;
    uint64_t bytes = 0;
    for (const PreparedShard& shard : shards) bytes += shard.bytes;
    const PreparedTokens part(directory, shards, manifest.vocab_size, TokenCache::Check::kContent);
    const DocumentView documents = part.document_view();
    text += cat("\n", validation ? "held out" : "training", "\n");
    text += line("files", cat(shards.size(), ", ", format_bytes(static_cast<int64_t>(bytes)),
                              ", all hashes right"));
    if (part.text_bytes() > 0)
      text += line("text", cat(format_bytes(part.text_bytes()), ", ",
                               format("%.2f", static_cast<double>(part.text_bytes()) /
                                                  static_cast<double>(part.tokens().count())),
                               " bytes a token"));
    text += inspect_tokens(part.tokens(), &documents, {}, config, tokenizer);
  }
  return text;
}

bool is_token_cache(const fs::path& path) {
  ReadFile file(path);
  TokenCacheTrailer trailer;
  if (file.size() < sizeof trailer) return false;
  file.read(file.size() - sizeof trailer, std::as_writable_bytes(std::span(&trailer, 1)));
  return trailer.magic == TokenCacheTrailer::kMagic;
}

std::string inspect_token_file(const fs::path& path, const ParsedOptions& parsed,
                               const Tokenizer* tokenizer) {
  const auto file = std::make_shared<ReadFile>(path);
  std::string text =
      cat("\n", path.string(), ", ", format_bytes(static_cast<int64_t>(file->size())), "\n");
  if (is_token_cache(path)) {
    const TokenCache cache(file, TokenCache::Check::kContent);
    const DocumentView documents = cache.document_view();
    return text + line("form", "token cache, all hashes right") +
           inspect_tokens(cache.tokens(), &documents, {}, parsed.config, tokenizer);
  }
  const int64_t vocab_size = tokenizer                       ? tokenizer->vocab_size()
                             : parsed.is_given("vocab_size") ? parsed.config.vocab_size
                                                             : 65536;
  const TokenFile tokens(file, vocab_size);
  text += line("form", cat("ids of ", tokens.width(), " bytes",
                           tokens.has_header() ? " behind llm.c's header" : ""));
  if (!tokenizer)
    text += line("", "--tokenizer tells where documents end and what they say; all is one here");
  auto ends = [&](int32_t id) { return tokenizer && id == tokenizer->end_of_text(); };
  return text + inspect_tokens(tokens.tokens(), nullptr, ends, parsed.config, tokenizer);
}

std::string inspect_documents(const DataInput& input, const std::vector<RemoteEntry>& files,
                              const ParsedOptions& parsed) {
  constexpr const char* kKinds[] = {"text", "rows of ids", "conversations"};
  const bool ids = input.reading.kind == RecordKind::kIds;
  uint64_t bytes = 0;
  for (const RemoteEntry& file : files) bytes += file.size;
  std::string text =
      line("files", cat(files.size(), ", ", format_bytes(static_cast<int64_t>(bytes))));
  text += line("form", kKinds[static_cast<size_t>(input.reading.kind)]);
  DocumentReader reader(files, input.reading);
  InspectionLines lines;
  const bool tokens = ids || input.tokenizer;
  DocumentStatistics statistics = statistics_of(parsed.config, tokens);
  int64_t text_bytes = 0;
  if (tokens && !ids) {
    EncodingJob job = input.encoding(parsed.config.append_eos);
    if (input.is_text())
      job.documents = [&](std::string& part) { return reader.next_part(part); };
    else
      job.records = [&](Record& record) { return reader.next(record); };
    ThreadPool pool(threads_of(parsed));
    TokenEncoder encoder(job, pool);
    std::vector<EncodedSegment> batch;
    std::vector<int32_t> targets;
    while (encoder.next(batch)) {
      lines.show(reader.bytes_read(), reader.bytes_total());
      for (const EncodedSegment& segment : batch) {
        targets = segment.ids;
        for (size_t i = 0; i < segment.learned.size(); ++i)
          if (segment.learned[i] == 0) targets[i] = kIgnoreIndex;
        size_t begin = 0;
        for (const EncodedSegment::Part& part : segment.parts) {
          statistics.add_tokens(std::span(segment.ids).subspan(begin, part.end - begin),
                                std::span(targets).subspan(begin, part.end - begin));
          begin = part.end;
          text_bytes += part.text_bytes;
          if (part.ends_document) statistics.end_document();
        }
      }
    }
  } else if (input.is_text()) {
    std::string part;
    for (TextPart got; (got = reader.next_part(part)) != TextPart::kNone;) {
      lines.show(reader.bytes_read(), reader.bytes_total());
      statistics.add_text(part);
      if (got == TextPart::kLast) statistics.end_document();
    }
  } else {
    Record record;
    while (reader.next(record)) {
      lines.show(reader.bytes_read(), reader.bytes_total());
      statistics.add_tokens(record.ids, record.labels);
      for (const Message& message : record.messages)
        statistics.add_text(cat(message.role, ": ", message.content, "\n"));
      for (const TextSpan& span : record.spans) statistics.add_text(span.text);
      statistics.end_document();
    }
  }
  statistics.finish();
  if (reader.bad_lines() > 0) text += line("broken", count_of(reader.bad_lines(), "line"));
  if (text_bytes > 0) {
    text += line("text", cat(format_bytes(text_bytes), ", ",
                             format("%.2f", static_cast<double>(text_bytes) /
                                                static_cast<double>(statistics.lengths().total())),
                             " bytes a token"));
  }
  return text + statistics_text(statistics, input.tokenizer.get(), tokens ? "tokens" : "bytes");
}

}  // namespace

int inspect_data(const ParsedOptions& parsed) {
  if (parsed.words.size() > 2 || (parsed.words.size() == 2) == parsed.is_given("dataset")) {
    throw UsageError("data inspect takes one file, directory or name: tessera data inspect PATH");
  }
  const RunConfig& config = parsed.config;
  const std::string name = parsed.words.size() == 2 ? parsed.words[1] : config.dataset;
  const fs::path path = name;
  std::unique_ptr<Tokenizer> tokenizer;
  if (parsed.is_given("tokenizer"))
    tokenizer = load_tokenizer(fetch_named_tokenizer(config.tokenizer, config));
  std::error_code ignored;
  std::string text = line("path", masked_url(name));
  if (is_prepared_dataset(path)) {
    text += inspect_prepared(path, config, tokenizer.get());
  } else if (path.extension() == ".bin" && fs::is_regular_file(path, ignored)) {
    text += inspect_token_file(path, parsed, tokenizer.get());
  } else if (fs::is_regular_file(path / "train.bin", ignored)) {
    text += inspect_token_file(path / "train.bin", parsed, tokenizer.get());
    if (fs::is_regular_file(path / "val.bin", ignored))
      text += inspect_token_file(path / "val.bin", parsed, tokenizer.get());
  } else if (auto prepared = find_prepared_dataset(path)) {
    text += inspect_prepared(*prepared, config, tokenizer.get());
  } else {
    DatasetNames names;
    names.dataset = name;
    if (!parsed.is_given("dataset")) names.option = "data inspect";
    names.config = config.dataset_config_name;
    const DataInput input = open_data_input(parsed, names, /*needs_tokens=*/false);
    text += inspect_documents(input, input.files.training, parsed);
    if (!input.files.validation.empty())
      text += cat("\nheld out\n", inspect_documents(input, input.files.validation, parsed));
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace tessera
