#include "remote/s3_answer.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "remote/xml_elements.h"

namespace tessera {
namespace {

constexpr size_t kMaxTexts = 20'000;

class AnswerParser : XmlElements {
 public:
  AnswerParser(std::string_view root, std::string_view where) : root_(root), where_(where) {}

  S3Answer parse(std::string_view xml) {
    read(xml);
    return std::move(answer_);
  }

 private:
  [[noreturn]] void fail(std::string_view why) const override {
    throw UserError(cat("cannot use the answer of '", where_, "': ", why,
                        "; check that the endpoint is one of S3"));
  }

  void begins(const std::vector<std::string>& path) override {
    // rclone's server leaves "Result" out.
    if (path.size() == 1 && path[0] != root_ && cat(path[0], "Result") != root_)
      fail(cat("it is no ", root_, " but '", path[0].substr(0, 40), "'"));
    is_leaf_ = path.size() > 1;
  }

  void ended(const std::vector<std::string>& path, std::string_view text) override {
    if (is_leaf_) {
      if (answer_.size() >= kMaxTexts) fail("it is too long");
      answer_.emplace_back(join(std::vector(path.begin() + 1, path.end()), "/"), trim(text));
    }
    is_leaf_ = false;
  }

  std::string_view root_, where_;
  bool is_leaf_ = false;
  S3Answer answer_;
};

}  // namespace

S3Answer parse_s3_answer(std::string_view xml, std::string_view root, std::string_view where) {
  return AnswerParser(root, where).parse(xml);
}

std::string_view find_text(const S3Answer& answer, std::string_view path) {
  auto found = std::ranges::find(answer, path, [](const auto& pair) { return pair.first; });
  return found == answer.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace tessera
