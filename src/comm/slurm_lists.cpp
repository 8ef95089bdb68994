#include "comm/slurm_lists.h"

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr size_t kMaxHosts = 65'536;
constexpr size_t kLongestName = 255, kLongestNumber = 18;
constexpr int kMaxTasksOfNode = 65'536;

class ListReader {
 public:
  ListReader(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  std::vector<std::string> hosts() {
    std::vector<std::string> all;
    while (true) {
      std::vector<std::string> names = names_of_one();
      if (all.size() + names.size() > kMaxHosts) refuse("more than 65536 hosts");
      all.insert(all.end(), names.begin(), names.end());
      if (at_ == text_.size()) return all;
      ++at_;  // names_of_one() ends at a comma
    }
  }

  std::vector<int> counts() {
    std::vector<int> all;
    while (true) {
      int count = small_number();
      int times = 1;
      if (text_.substr(at_).starts_with("(x")) {
        at_ += 2;
        times = small_number();
        take(')');
      }
      if (all.size() + static_cast<size_t>(times) > kMaxHosts) refuse("more than 65536 nodes");
      all.insert(all.end(), static_cast<size_t>(times), count);
      if (at_ == text_.size()) return all;
      take(',');
    }
  }

 private:
  [[noreturn]] void refuse(std::string_view reason) const {
    throw UserError(
        cat(what_, " = '", text_.substr(0, 200), "', character ", at_ + 1, ": ", reason));
  }

  bool ends() const { return at_ == text_.size() || text_[at_] == ','; }

  void take(char wanted) {
    if (at_ == text_.size() || text_[at_] != wanted) refuse(cat("expected '", wanted, "'"));
    ++at_;
  }

  // All names that one entry stands for, up to the comma behind it.
  std::vector<std::string> names_of_one() {
    std::vector<std::string> names{""};
    while (!ends()) {
      if (text_[at_] == '[') {
        ++at_;
        append_each(names, numbers_of_bracket());
      } else {
        char c = text_[at_];
        bool inside = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!inside && c != '.' && c != '_' && (c != '-' || names[0].empty())) {
          refuse("no host has this character in its name");
        }
        for (std::string& name : names) name += c;
        ++at_;
      }
      if (names[0].size() > kLongestName) refuse("a name of more than 255 characters");
    }
    if (names[0].empty()) refuse("expected the name of a host");
    return names;
  }

  void append_each(std::vector<std::string>& names, const std::vector<std::string>& numbers) {
    if (names.size() * numbers.size() > kMaxHosts) refuse("more than 65536 hosts");
    std::vector<std::string> product;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) product.push_back(name + number);
    }
    names = std::move(product);
  }

  // Behind '[': numbers and ranges of them, up to the ']' and past it.
  std::vector<std::string> numbers_of_bracket() {
    std::vector<std::string> numbers;
    while (true) {
      std::string_view first = digits(), last = first;
      if (at_ < text_.size() && text_[at_] == '-') {
        ++at_;
        last = digits();
      }
      uint64_t low = value(first), high = value(last);
      if (high < low) refuse("a range that runs backwards");
      if (high - low >= kMaxHosts - numbers.size()) refuse("more than 65536 hosts");
      for (uint64_t number = low; number <= high; ++number) {
        std::string text = cat(number);
        if (text.size() < first.size()) text.insert(0, first.size() - text.size(), '0');
        numbers.push_back(std::move(text));
      }
      if (at_ < text_.size() && text_[at_] == ',') {
        ++at_;
        continue;
      }
      take(']');
      return numbers;
    }
  }

  std::string_view digits() {
    size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (at_ == begin) refuse("expected a number");
    if (at_ - begin > kLongestNumber) refuse("a number of more than 18 digits");
    return text_.substr(begin, at_ - begin);
  }

  static uint64_t value(std::string_view digits) { return parse_number<uint64_t>(digits).value(); }

  int small_number() {
    uint64_t number = value(digits());
    if (number < 1 || number > static_cast<uint64_t>(kMaxTasksOfNode)) {
      refuse("a number outside 1 to 65536");
    }
    return static_cast<int>(number);
  }

  std::string_view text_, what_;
  size_t at_ = 0;
};

}  // namespace

std::vector<std::string> expand_host_list(std::string_view text, std::string_view what) {
  return ListReader(text, what).hosts();
}

std::vector<int> expand_task_counts(std::string_view text, std::string_view what) {
  return ListReader(text, what).counts();
}

}  // namespace tessera
