#pragma once
// Options are structs; each lists its fields once, and TOML reading, --set, --help, the resolved file with
// origins and the nearest-name hint all come from that list.
//
//   struct OptimOptions {
//     std::string kind = "sgd";
//     double lr = 1e-3;
//     void list(OptionList& o) {
//       o.add("kind", kind, "update rule").one_of({"sgd", "adam", "adamw"});
//       o.add("lr", lr, "learning rate").at_least(0);
//     }
//   };
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/base/units.h"

namespace trireme {

class OptionList;

// Where a value came from, for the resolved file: "default", "job.toml:12", "--set", "environment".
using Origin = std::string;

// A free-form inline table, e.g. codec_options = { range = "max", block = 256 }; values keep their TOML type.
using OptionValue = std::variant<bool, int64_t, double, std::string>;
using OptionTable = std::map<std::string, OptionValue>;

// A number, or "auto": the program chooses.
struct AutoNumber {
  std::optional<double> value;
  bool operator==(const AutoNumber&) const = default;
};

class Option {
 public:
  using Target =
      std::variant<bool*, int64_t*, double*, std::string*, std::optional<double>*, std::vector<std::string>*,
                   std::vector<double>*, Bytes*, Rate*, Seconds*, OptionTable*, AutoNumber*>;
  // Constraints, checked when a value is set; each returns *this.
  Option& one_of(std::vector<std::string> choices);
  Option& at_least(double minimum);
  Option& at_most(double maximum);
  Option& above(double minimum);
  // Not compared between ranks (out directory, interface, rank): see OptionList::digest_text.
  Option& local();

  std::string key;   // "train.steps"
  std::string help;  // one line, with the unit
  Target target;
  Origin origin = "default";
  std::vector<std::string> choices;
  std::optional<double> minimum, maximum;
  bool exclusive_minimum = false;
  bool is_local = false;
};

class OptionList {
 public:
  // Fields added inside `fill` get "section." before their key.
  void section(const std::string& name, const std::string& help,
               const std::function<void(OptionList&)>& fill);
  template <typename T>
  Option& add(const std::string& key, T& field, const std::string& help) {
    return add_target(key, &field, help);
  }
  // An array of tables ([[optim.group]]): each table found becomes one T in `rows`, read by T::list. A later
  // source that has the key replaces all rows.
  template <typename T>
  void rows(const std::string& key, std::vector<T>& rows, const std::string& help) {
    add_rows({.key = key,
              .help = help,
              .size = [&rows] { return rows.size(); },
              .resize = [&rows](size_t n) { rows.resize(n); },
              .list = [&rows](size_t i, OptionList& o) { rows[i].list(o); },
              .list_blank = [](OptionList& o) -> std::shared_ptr<void> {
                auto blank = std::make_shared<T>();
                blank->list(o);
                return blank;
              }});
  }

  // Reads a TOML file into the fields. Error(input) names file, line and key: unknown key (with the nearest
  // known one), wrong type, impossible value, broken TOML.
  void read_toml(const std::filesystem::path& path);
  void read_toml_text(std::string_view text, const std::string& origin);
  // "section.key=value" as on the command line; value is TOML, or a bare word for strings, sizes, rates and
  // times. An entry of an inline table is set by "sync.codec_options.block=256". Error(usage) naming the
  // assignment.
  void set(std::string_view assignment);

  // As if each entry stood in a file's top table; errors begin with `label` and are Error(usage).
  void read_table(const OptionTable& table, const std::string& label);

  // The resolved configuration as TOML, each value with its origin as a comment. Reading it back gives equal
  // values.
  std::string to_toml() const;
  // As to_toml without local options and origins: what ranks compare.
  std::string digest_text() const;
  // The key reference, for --help and docs.
  std::string help_text() const;
  const std::vector<Option>& options() const { return options_; }
  Option& find(std::string_view key);

  OptionList() = default;
  OptionList(const OptionList&) = delete;
  OptionList& operator=(const OptionList&) = delete;

 private:
  struct Rows {
    std::string key, help;
    std::function<size_t()> size;
    std::function<void(size_t)> resize;
    std::function<void(size_t, OptionList&)> list;
    std::function<std::shared_ptr<void>(OptionList&)>
        list_blank;                                      // lists a default row, which the result keeps alive
    std::vector<std::map<std::string, Origin>> origins;  // of each row's keys
  };
  struct Reader;
  Option& add_target(const std::string& key, Option::Target target, const std::string& help);
  void add_rows(Rows rows);
  std::string render(bool for_people) const;
  std::string prefix_;
  std::vector<Option> options_;
  std::vector<Rows> rows_;
  std::vector<std::pair<std::string, std::string>> sections_;
};

}  // namespace trireme
