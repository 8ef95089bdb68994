#include "remote/s3_answer.h"

#include <expat.h>

#include <algorithm>
#include <exception>
#include <memory>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr size_t kMaxDepth = 8, kMaxTextBytes = 8192, kMaxTexts = 20'000;

class AnswerParser {
 public:
  AnswerParser(std::string_view root, std::string_view where)
      : root_(root), where_(where), parser_(::XML_ParserCreate(nullptr), ::XML_ParserFree) {
    if (!parser_) throw DeviceError("no memory for a parser of XML");
    ::XML_SetUserData(parser_.get(), this);
    ::XML_SetElementHandler(
        parser_.get(),
        [](void* self, const char* name, const char**) {
          static_cast<AnswerParser*>(self)->call([name](AnswerParser& p) { p.begin(name); });
        },
        [](void* self, const char*) {
          static_cast<AnswerParser*>(self)->call([](AnswerParser& p) { p.end(); });
        });
    ::XML_SetCharacterDataHandler(parser_.get(), [](void* self, const char* text, int size) {
      std::string_view piece(text, static_cast<size_t>(size));
      static_cast<AnswerParser*>(self)->call([piece](AnswerParser& p) { p.add(piece); });
    });
    // Where there is no document type there are no entities that grow.
    ::XML_SetStartDoctypeDeclHandler(
        parser_.get(), [](void* self, const char*, const char*, const char*, int) {
          static_cast<AnswerParser*>(self)->call(
              [](AnswerParser& p) { p.fail("it declares a document type"); });
        });
  }

  S3Answer parse(std::string_view xml) {
    auto status = ::XML_Parse(parser_.get(), xml.data(), static_cast<int>(xml.size()), 1);
    if (error_) std::rethrow_exception(error_);
    if (status != XML_STATUS_OK)
      fail(cat("broken XML: ", ::XML_ErrorString(::XML_GetErrorCode(parser_.get()))));
    return std::move(answer_);
  }

 private:
  [[noreturn]] void fail(std::string_view why) const {
    throw UserError(cat("cannot use the answer of '", where_, "': ", why,
                        "; check that the endpoint is one of S3"));
  }

  // No exception may pass through the parser.
  template <class Action>
  void call(Action action) {
    if (error_) return;
    try {
      action(*this);
    } catch (...) {
      error_ = std::current_exception();
      ::XML_StopParser(parser_.get(), XML_FALSE);
    }
  }

  void begin(std::string_view name) {
    if (depth_ >= kMaxDepth) fail("it is nested too deeply");
    // rclone's server leaves "Result" out.
    if (depth_ == 0 && name != root_ && cat(name, "Result") != root_)
      fail(cat("it is no ", root_, " but '", name.substr(0, 40), "'"));
    if (depth_ > 0) path_ += cat(path_.empty() ? "" : "/", name.substr(0, 64));
    ++depth_;
    text_.clear();
    is_leaf_ = depth_ > 1;
  }

  void add(std::string_view piece) {
    if (piece.size() > kMaxTextBytes - text_.size()) fail("a value is too long");
    text_.append(piece);
  }

  void end() {
    if (is_leaf_) {
      if (answer_.size() >= kMaxTexts) fail("it is too long");
      answer_.emplace_back(path_, trim(text_));
    }
    is_leaf_ = false;
    --depth_;
    path_.resize(path_.find('/') == std::string::npos ? 0 : path_.rfind('/'));
    text_.clear();
  }

  std::string_view root_, where_;
  std::unique_ptr<XML_ParserStruct, decltype(&::XML_ParserFree)> parser_;
  std::exception_ptr error_;
  size_t depth_ = 0;
  bool is_leaf_ = false;
  std::string path_, text_;
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
