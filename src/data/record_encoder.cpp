#include "data/record_encoder.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/ignore_index.h"
#include "base/text.h"
#include "data/json_record.h"

namespace tessera {
namespace {

// The text of spans, and where what is in it.
struct JoinedSpans {
  std::string text;
  std::vector<TextRange> markup, learned;  // ascending, apart from each other
};

void extend(std::vector<TextRange>& ranges, TextRange range) {
  if (range.begin == range.end) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

JoinedSpans join_spans(std::span<const TextSpan> spans) {
  JoinedSpans joined;
  for (const TextSpan& span : spans) {
    const TextRange range{joined.text.size(), joined.text.size() + span.text.size()};
    joined.text += span.text;
    if (span.markup) extend(joined.markup, range);
    if (span.learn) extend(joined.learned, range);
  }
  return joined;
}

size_t bytes_of(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  size_t bytes = 0;
  for (int32_t id : ids) bytes += tokenizer.token_bytes(id).size();
  return bytes;
}

// Says which tokens of one run of text are learned.
class LearnedTokens {
 public:
  LearnedTokens(const Tokenizer& tokenizer, const JoinedSpans& joined)
      : tokenizer_(tokenizer), joined_(joined) {}

  // Of the run's `ids`; runs come in order.
  void append(const EncodedRun& run, std::span<const int32_t> ids, std::vector<uint8_t>& learned) {
    // Ranges that end before this run are of no use any more.
    const std::vector<TextRange>& ranges = joined_.learned;
    while (next_ < ranges.size() && ranges[next_].end <= run.text.begin) ++next_;
    if (next_ == ranges.size() || ranges[next_].begin >= run.text.end) {
      learned.insert(learned.end(), ids.size(), 0);
      return;
    }
    const bool all = ranges[next_].begin <= run.text.begin && run.text.end <= ranges[next_].end;
    if (all || run.added) {
      learned.insert(learned.end(), ids.size(), all);
      return;
    }
    const bool as_text = bytes_of(tokenizer_, ids) == run.text.end - run.text.begin;
    size_t range = next_, end = 0;
    TextRange now = in_tokens(ranges[range], run, as_text);
    for (int32_t id : ids) {
      const size_t begin = end;
      end += tokenizer_.token_bytes(id).size();
      while (begin >= now.end && range + 1 < ranges.size() &&
             ranges[range + 1].begin < run.text.end)
        now = in_tokens(ranges[++range], run, as_text);
      learned.push_back(begin >= now.begin && end <= now.end);
    }
  }

 private:
  // The part of `range` in a run, in bytes of the run's tokens.
  TextRange in_tokens(TextRange range, const EncodedRun& run, bool as_text) const {
    return {place(range.begin, run, as_text), place(range.end, run, as_text)};
  }
  size_t place(size_t border, const EncodedRun& run, bool as_text) const {
    if (border <= run.text.begin) return 0;
    if (border >= run.text.end) return SIZE_MAX;
    if (as_text) return border - run.text.begin;
    const auto before =
        std::string_view(joined_.text).substr(run.text.begin, border - run.text.begin);
    std::vector<int32_t> ids;
    tokenizer_.encode_marked({before, {}, run.text.begin == 0}, ids);
    return bytes_of(tokenizer_, ids);
  }

  const Tokenizer& tokenizer_;
  const JoinedSpans& joined_;
  size_t next_ = 0;  // the first learned range that does not end before the run
};

}  // namespace

RecordEncoder::RecordEncoder(const Tokenizer& tokenizer, std::optional<ChatTemplate> chat,
                             std::optional<int64_t> vocab_size)
    : tokenizer_(tokenizer),
      chat_(std::move(chat)),
      vocab_size_(std::min<int64_t>(tokenizer.vocab_size(), vocab_size.value_or(INT64_MAX))) {
  if (!chat_) return;
  for (std::string_view name : {chat_->begin_token(), chat_->end_token()}) {
    if (name.empty() || find_token(tokenizer_, name)) continue;
    throw UserError(cat("the chat template ", chat_->name(), " writes the token '", name,
                        "', which is no special token of the tokenizer (", tokenizer_.description(),
                        "): give another --chat_template, or the tokenizer that has it"));
  }
}

void RecordEncoder::encode(const Record& record, std::vector<int32_t>& ids,
                           std::vector<uint8_t>& learned) const {
  ids.clear();
  learned.clear();
  const std::span<const int32_t> prefix = tokenizer_.document_prefix();
  if (!record.messages.empty()) {
    if (!chat_) {
      throw UserError(
          "a conversation (\"messages\") needs a chat template, and the tokenizer has none: name "
          "one by --chat_template, for example chatml");
    }
    encode_spans(chat_->render(record.messages), ids, learned);
  } else if (!record.ids.empty()) {
    encode_ids(record, ids, learned);
  } else if (!record.spans.empty()) {
    ids.assign(prefix.begin(), prefix.end());
    learned.assign(prefix.size(), 0);
    encode_spans(record.spans, ids, learned);
    ids.push_back(tokenizer_.end_of_text());
    learned.push_back(record.spans.back().learn);
  } else if (!record.text.empty()) {
    ids.assign(prefix.begin(), prefix.end());
    tokenizer_.encode(record.text, ids);
    ids.push_back(tokenizer_.end_of_text());
    learned.assign(ids.size(), 1);
  }
  TESSERA_CHECK(ids.size() == learned.size());
}

std::vector<int32_t> RecordEncoder::encode_question(const std::string& question) const {
  TESSERA_CHECK(chat_.has_value());
  const Message message{"user", question};
  std::vector<int32_t> ids;
  std::vector<uint8_t> learned;
  encode_spans(chat_->render({&message, 1}, true), ids, learned);
  return ids;
}

void RecordEncoder::encode_ids(const Record& record, std::vector<int32_t>& ids,
                               std::vector<uint8_t>& learned) const {
  if (!record.labels.empty() && record.labels.size() != record.ids.size()) {
    throw UserError(cat("there are ", record.ids.size(), " ids and ", record.labels.size(),
                        " labels: give one for each"));
  }
  if (std::string problem = label_problem(record); !problem.empty()) throw UserError(problem);
  ids = record.ids;
  learned.assign(ids.size(), 1);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= tokenizer_.vocab_size()) {
      throw UserError(cat("id ", i, " is ", ids[i],
                          ", which the tokenizer lacks (its ids are 0 to ",
                          tokenizer_.vocab_size() - 1, "): give the tokenizer that made the ids"));
    }
    if (!record.labels.empty()) learned[i] = record.labels[i] != kIgnoreIndex;
  }
}

void RecordEncoder::encode_spans(std::span<const TextSpan> spans, std::vector<int32_t>& ids,
                                 std::vector<uint8_t>& learned) const {
  const JoinedSpans joined = join_spans(spans);
  size_t begin = ids.size();
  LearnedTokens tokens(tokenizer_, joined);
  for (const EncodedRun& run : tokenizer_.encode_marked({joined.text, joined.markup}, ids)) {
    tokens.append(run, std::span(ids).subspan(begin, run.ids_end - begin), learned);
    begin = run.ids_end;
  }
  check_ids(tokenizer_, ids, vocab_size_);
}

std::string answer_end_warning(const Tokenizer& tokenizer, const ChatTemplate& chat) {
  const std::string end = chat.answer_end();
  if (find_token(tokenizer, end)) return "";
  return cat("the chat template ", chat.name(), " ends an answer with '", end,
             "', which is no special token of the tokenizer (", tokenizer.description(),
             "): it is trained as characters, and programs that stop at a token go on behind it; "
             "give another --chat_template, or a tokenizer that has it");
}

uint64_t RecordEncoder::fingerprint() const {
  Hasher hasher;
  const uint64_t tokenizer = tokenizer_.fingerprint(), chat = chat_ ? chat_->fingerprint() : 0;
  hasher.add(&tokenizer, sizeof tokenizer);
  hasher.add(&chat, sizeof chat);
  if (vocab_size_ < tokenizer_.vocab_size()) hasher.add(&vocab_size_, sizeof vocab_size_);
  return hasher.digest();
}

}  // namespace tessera
