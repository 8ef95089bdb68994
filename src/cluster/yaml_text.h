#pragma once
#include <string>
#include <string_view>

namespace tessera {

// A YAML document as it is written down: block style, two blanks a level, comments where they are
// said. What is inside of a mapping or a list ends with its Level.
class YamlText {
 public:
  class Level {
   public:
    ~Level() { --text_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    friend class YamlText;
    explicit Level(YamlText& text) : text_(text) { ++text_.depth_; }
    YamlText& text_;
  };

  // `key:` with a mapping or a list behind it. With a comment at the end of the line.
  [[nodiscard]] Level inside(std::string_view key, std::string_view comment = "");
  // An item of a list that is a mapping.
  [[nodiscard]] Level item();
  void value(std::string_view text);  // an item of a list that is a text, or a number
  void value(int64_t number);
  void field(std::string_view key, std::string_view text, std::string_view comment = "");
  void number(std::string_view key, int64_t value, std::string_view comment = "");
  void boolean(std::string_view key, bool value, std::string_view comment = "");
  void comment(std::string_view line);
  void next_document() { text_ += "---\n"; }

  const std::string& text() const { return text_; }

 private:
  void line(std::string_view content, std::string_view comment);

  std::string text_;
  int depth_ = 0;
  bool begins_item_ = false;
};

// A text as a scalar: in double quotes unless every reader of YAML 1.1 and 1.2 takes the plain word
// for the same text.
std::string yaml_scalar(std::string_view text);

}  // namespace tessera
