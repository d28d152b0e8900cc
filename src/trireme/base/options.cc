#include "trireme/base/options.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme {
namespace {

template <typename... F>
struct Overload : F... {
  using F::operator()...;
};
template <typename... F>
Overload(F...) -> Overload<F...>;

std::string_view leaf(std::string_view key) {
  return key.substr(key.rfind('.') + 1);
}
std::string_view section_of(std::string_view key) {
  const auto dot = key.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : key.substr(0, dot);
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string all;
  for (const auto& word : words) all += (all.empty() ? "" : std::string(separator)) + word;
  return all;
}

// --- printing

std::string text_of(const std::string& value) {
  std::string out = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += std::string("\\") + c;
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04X", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}
std::string text_of(bool value) {
  return value ? "true" : "false";
}
std::string text_of(int64_t value) {
  return std::to_string(value);
}
std::string text_of(double value) {
  char text[40];
  std::string out(text, std::to_chars(text, text + sizeof text, value).ptr);
  if (out.find_first_of(".en") == std::string::npos) out += ".0";  // TOML tells 1 from 1.0
  return out;
}
std::string text_of(const OptionValue& value) {
  return std::visit([](const auto& v) { return text_of(v); }, value);
}
template <typename T>
std::string text_of(const std::vector<T>& values) {
  std::vector<std::string> parts;
  for (const auto& v : values) parts.push_back(text_of(v));
  return "[" + joined(parts, ", ") + "]";
}
std::string text_of(const OptionTable& table) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : table) parts.push_back(text_of(key) + " = " + text_of(value));
  return parts.empty() ? "{}" : "{ " + joined(parts, ", ") + " }";
}

// The value as TOML; empty for an optional that is not set.
std::string text_of(const Option::Target& target) {
  return std::visit(Overload{[](const auto* v) { return text_of(*v); },
                             [](const std::optional<double>* v) { return *v ? text_of(**v) : std::string(); },
                             [](const AutoNumber* v) {
                               return v->value ? text_of(*v->value) : text_of(std::string("auto"));
                             },
                             [](const Bytes* v) { return text_of(to_text(*v)); },
                             [](const Rate* v) { return text_of(to_text(*v)); },
                             [](const Seconds* v) { return text_of(to_text(*v)); }},
                    target);
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

std::string number_text(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? std::to_string(static_cast<int64_t>(value))
                                                              : text_of(value);
}

// "ring | off", "0 or more", …: what a key accepts beyond its type.
std::string accepts(const Option& o) {
  if (!o.choices.empty()) return joined(o.choices, " | ");
  std::string low, high;
  if (o.minimum)
    low = o.exclusive_minimum ? "above " + number_text(*o.minimum) : number_text(*o.minimum) + " or more";
  if (o.maximum) high = "at most " + number_text(*o.maximum);
  return low + (low.empty() || high.empty() ? "" : ", ") + high;
}

// --- reading

// A value that its key does not take; the reader adds where it stands.
struct Refused {
  std::string what;
};

std::string_view type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a fractional number";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

template <typename T>
T expect(const toml::node& node, std::string_view wanted) {
  if (const auto value = node.value_exact<T>()) return *value;
  throw Refused{cat(" must be ", wanted, ", not ", type_name(node))};
}

double number(const toml::node& node) {
  const double value =
      node.is_integer() ? static_cast<double>(node.ref<int64_t>()) : expect<double>(node, "a number");
  if (!std::isfinite(value)) throw Refused{" must be a finite number"};
  return value;
}

template <typename T>
std::vector<T> array_of(const toml::node& node, std::string_view wanted, T (*element)(const toml::node&)) {
  if (!node.is_array()) throw Refused{cat(" must be ", wanted, ", not ", type_name(node))};
  std::vector<T> values;
  for (const auto& item : *node.as_array()) values.push_back(element(item));
  return values;
}

OptionValue plain_value(const toml::node& node) {
  if (node.is_boolean()) return node.ref<bool>();
  if (node.is_integer()) return node.ref<int64_t>();
  if (node.is_floating_point()) return node.ref<double>();
  return expect<std::string>(node, "true, false, a number or a string");
}

// A quantity is a bare number in its base unit, or text with a unit.
template <typename T>
T quantity(const toml::node& node, T (*parse)(std::string_view), std::string_view wanted) {
  if (node.is_string()) return parse(node.ref<std::string>());
  if (!node.is_number()) throw Refused{cat(" must be ", wanted, ", not ", type_name(node))};
  return parse(node.is_integer() ? std::to_string(node.ref<int64_t>()) : text_of(node.ref<double>()));
}

void check_range(const Option& o, double value) {
  const bool low = o.minimum && (o.exclusive_minimum ? value <= *o.minimum : value < *o.minimum);
  if (low || (o.maximum && value > *o.maximum))
    throw Refused{cat(" = ", number_text(value), ": must be ", accepts(o))};
}

void check_choice(const Option& o, const std::string& value) {
  if (o.choices.empty() || std::find(o.choices.begin(), o.choices.end(), value) != o.choices.end()) return;
  const auto near = nearest(value, o.choices);
  throw Refused{cat(" = ", text_of(value), ": must be ", joined(o.choices, " | "),
                    near.empty() ? "" : "; did you mean \"" + near + "\"?")};
}

// Converts and checks first, so that a refused value leaves the field as it was.
void assign(const Option& o, const toml::node& node) {
  const auto put = [&](auto* field, auto value, double measure) {
    check_range(o, measure);
    *field = std::move(value);
  };
  std::visit(Overload{[&](bool* f) { *f = expect<bool>(node, "true or false"); },
                      [&](int64_t* f) {
                        const auto v = expect<int64_t>(node, "a whole number");
                        put(f, v, static_cast<double>(v));
                      },
                      [&](double* f) { put(f, number(node), number(node)); },
                      [&](std::optional<double>* f) { put(f, number(node), number(node)); },
                      [&](AutoNumber* f) {
                        if (node.is_string() && node.ref<std::string>() == "auto") {
                          f->value.reset();
                          return;
                        }
                        if (!node.is_number()) throw Refused{" must be a number or \"auto\""};
                        put(&f->value, number(node), number(node));
                      },
                      [&](std::string* f) {
                        // auto | true | false: the choices say that a TOML boolean is meant as well.
                        const bool word = node.is_boolean() && !o.choices.empty();
                        const auto v =
                            word ? text_of(node.ref<bool>()) : expect<std::string>(node, "a string");
                        check_choice(o, v);
                        *f = v;
                      },
                      [&](std::vector<std::string>* f) {
                        *f = array_of<std::string>(node, "an array of strings", [](const toml::node& n) {
                          return expect<std::string>(n, "an array of strings");
                        });
                      },
                      [&](std::vector<double>* f) {
                        auto values = array_of<double>(node, "an array of numbers", &number);
                        for (const double v : values) check_range(o, v);
                        *f = std::move(values);
                      },
                      [&](Bytes* f) {
                        const auto v = quantity(node, &parse_bytes, "a size");
                        put(f, v, static_cast<double>(v.value));
                      },
                      [&](Rate* f) {
                        const auto v = quantity(node, &parse_rate, "a rate");
                        put(f, v, v.bytes_per_second);
                      },
                      [&](Seconds* f) {
                        const auto v = quantity(node, &parse_seconds, "a time");
                        put(f, v, v.value);
                      },
                      [&](OptionTable* f) {
                        if (!node.is_table()) throw Refused{cat(" must be a table, not ", type_name(node))};
                        OptionTable table;
                        for (const auto& [k, v] : *node.as_table())
                          table[std::string(k.str())] = plain_value(v);
                        *f = std::move(table);
                      }},
             o.target);
}

bool is_whole_number(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789_") == std::string_view::npos;
}

bool takes_bare_word(const Option& o) {
  return std::visit(Overload{[](const auto*) { return false; }, [](const std::string*) { return true; },
                             [](const Bytes*) { return true; }, [](const Rate*) { return true; },
                             [](const Seconds*) { return true; }},
                    o.target);
}

}  // namespace

// Walks one parsed document: a file, whose errors name the line, or a --set, whose errors name the
// assignment.
struct OptionList::Reader {
  ErrorCode code;
  std::string label;
  bool has_lines;

  std::string where(const toml::source_region& source) const {
    return has_lines ? cat(label, ":", source.begin.line) : label;
  }
  Origin origin(const toml::source_region& source) const { return has_lines ? where(source) : "--set"; }

  void table(OptionList& list, const toml::table& table, const std::string& prefix) const {
    for (const auto& [key, node] : table) {
      const auto full = prefix + std::string(key.str());
      const auto option =
          std::find_if(list.options_.begin(), list.options_.end(), [&](auto& o) { return o.key == full; });
      const auto rows =
          std::find_if(list.rows_.begin(), list.rows_.end(), [&](auto& r) { return r.key == full; });
      if (option != list.options_.end()) {
        value(*option, node, key.source());
      } else if (rows != list.rows_.end()) {
        read_rows(*rows, node, key.source());
      } else if (is_section(list, full) && node.is_table()) {
        this->table(list, *node.as_table(), full + ".");
      } else {
        unknown(list, full, is_section(list, full), node.is_table(), key.source());
      }
    }
  }

  void value(Option& option, const toml::node& node, const toml::source_region& source) const {
    try {
      assign(option, node);
    } catch (const Refused& refused) {
      fail(code, where(source), ": ", option.key, refused.what);
    } catch (const Error& error) {  // a quantity's parser
      fail(code, where(source), ": ", option.key, ": ", error.what());
    }
    option.origin = origin(source);
  }

  // One entry of an inline table, leaving the others.
  void entry(Option& option, const std::string& key, const toml::node& node) const {
    try {
      (*std::get<OptionTable*>(option.target))[key] = plain_value(node);
    } catch (const Refused& refused) {
      fail(code, label, ": ", option.key, ".", key, refused.what);
    }
    option.origin = origin({});
  }

  void read_rows(Rows& rows, const toml::node& node, const toml::source_region& source) const {
    const auto* array = node.as_array();
    if (array == nullptr ||
        !std::all_of(array->begin(), array->end(), [](auto& n) { return n.is_table(); })) {
      fail(code, where(source), ": ", rows.key, " must be an array of tables: write [[", rows.key, "]]");
    }
    rows.resize(0);  // fields that this source leaves out are defaults again
    rows.resize(array->size());
    rows.origins.assign(array->size(), {});
    for (size_t i = 0; i < array->size(); ++i) {
      OptionList row;
      row.prefix_ = rows.key + ".";
      rows.list(i, row);
      table(row, *array->get(i)->as_table(), row.prefix_);
      for (const auto& o : row.options_) rows.origins[i][o.key] = o.origin;
    }
  }

  static bool is_section(const OptionList& list, const std::string& name) {
    const auto inside = [&](const auto& entry) { return entry.key.starts_with(name + "."); };
    return std::any_of(list.options_.begin(), list.options_.end(), inside) ||
           std::any_of(list.rows_.begin(), list.rows_.end(), inside);
  }

  [[noreturn]] void unknown(const OptionList& list, const std::string& full, bool section, bool is_table,
                            const toml::source_region& source) const {
    const auto at = where(source);
    if (section) fail(code, at, ": ", full, " is a section: write [", full, "] and its keys below");
    std::vector<std::string> keys, sections;
    for (const auto& o : list.options_) keys.push_back(o.key);
    for (const auto& r : list.rows_) keys.push_back(r.key);
    for (const auto& s : list.sections_) sections.push_back(s.first);
    if (is_table && section_of(full).empty()) {
      const auto near = nearest(full, sections);
      fail(code, at, ": unknown section [", full, "]; ",
           near.empty() ? "known are " + joined(sections, ", ") : "did you mean [" + near + "]?");
    }
    // A key that stands in the wrong section is more often misplaced than misspelt.
    std::string near;
    for (const auto& k : keys) {
      if (leaf(k) == leaf(full)) near = k;
    }
    if (near.empty()) near = nearest_in_section(full, keys);
    fail(code, at, ": unknown key ", full, near.empty() ? "" : "; did you mean " + near + "?");
  }

  static std::string nearest_in_section(const std::string& full, const std::vector<std::string>& keys) {
    std::vector<std::string> leaves;
    const std::string section(section_of(full));
    for (const auto& k : keys) {
      if (section_of(k) == section) leaves.emplace_back(leaf(k));
    }
    const auto near = nearest(leaf(full), leaves);
    if (near.empty()) return nearest(full, keys);
    return section.empty() ? near : section + "." + near;
  }
};

Option& Option::one_of(std::vector<std::string> list) {
  choices = std::move(list);
  return *this;
}
Option& Option::at_least(double value) {
  minimum = value;
  return *this;
}
Option& Option::at_most(double value) {
  maximum = value;
  return *this;
}
Option& Option::above(double value) {
  minimum = value;
  exclusive_minimum = true;
  return *this;
}
Option& Option::local() {
  is_local = true;
  return *this;
}

void OptionList::section(const std::string& name, const std::string& help,
                         const std::function<void(OptionList&)>& fill) {
  const auto outer = prefix_;
  sections_.emplace_back(outer + name, help);
  prefix_ += name + ".";
  fill(*this);
  prefix_ = outer;
}

Option& OptionList::add_target(const std::string& key, Option::Target target, const std::string& help) {
  const auto full = prefix_ + key;
  for (const auto& o : options_) TRIREME_CHECK(o.key != full, full, " is listed twice");
  options_.push_back({.key = full, .help = help, .target = target});
  return options_.back();
}

void OptionList::add_rows(Rows rows) {
  rows.key = prefix_ + rows.key;
  rows_.push_back(std::move(rows));
}

void OptionList::read_toml(const std::filesystem::path& path) {
  read_toml_text(read_file(path), path.string());
}

void OptionList::read_toml_text(std::string_view text, const std::string& origin) {
  toml::table document;
  try {
    document = toml::parse(text, origin);
  } catch (const toml::parse_error& error) {
    fail(ErrorCode::input, origin, ":", error.source().begin.line,
         ": not valid TOML: ", one_line(std::string(error.description())));
  }
  Reader{ErrorCode::input, origin, true}.table(*this, document, "");
}

void OptionList::read_table(const OptionTable& table, const std::string& label) {
  toml::table document;
  for (const auto& [key, value] : table)
    std::visit([&, k = key](const auto& v) { document.insert(k, v); }, value);
  Reader{ErrorCode::usage, label, false}.table(*this, document, "");
}

void OptionList::set(std::string_view assignment) {
  const auto equals = assignment.find('=');
  const Reader reader{ErrorCode::usage, one_line(cat("--set ", assignment)), false};
  if (equals == std::string_view::npos || equals == 0)
    fail(ErrorCode::usage, reader.label, ": write section.key=value");
  const std::string key(assignment.substr(0, equals));
  const std::string value(assignment.substr(equals + 1));

  const auto option = std::find_if(options_.begin(), options_.end(), [&](auto& o) { return o.key == key; });
  const bool quoted = value.starts_with('"') || value.starts_with('\'');
  if (option != options_.end() && takes_bare_word(*option) && !quoted) {
    return reader.value(*option, toml::value<std::string>(value), {});
  }
  toml::table document;
  try {
    document = toml::parse("value = " + value);
  } catch (const toml::parse_error&) {
    if (option != options_.end() && is_whole_number(value)) {
      const auto range = accepts(*option);
      fail(ErrorCode::usage, reader.label, ": ", option->key, " must be a whole number of 64 bits",
           range.empty() ? "" : ", " + range);
    }
    document.insert("value", value);  // a bare word; the key's type decides whether it is one
  }
  if (document.size() != 1) fail(ErrorCode::usage, reader.label, ": one key and one value at a time");
  const auto& node = *document.get("value");

  const auto parent = std::find_if(options_.begin(), options_.end(), [&](auto& o) {
    return o.key == section_of(key) && std::holds_alternative<OptionTable*>(o.target);
  });
  if (parent != options_.end()) return reader.entry(*parent, std::string(leaf(key)), node);
  toml::table nested;
  nested.insert(leaf(key), node);
  reader.table(*this, nested, key.substr(0, key.size() - leaf(key).size()));
}

// The resolved file with origins, or (for machines) only what ranks must agree on.
std::string OptionList::render(bool for_people) const {
  std::string out;
  std::string_view section;
  const auto line = [&](const Option& o, const Origin& origin) {
    const auto value = text_of(o.target);
    if (!for_people) {
      if (!o.is_local) out += cat(o.key, " = ", value, "\n");
    } else if (value.empty()) {
      out += cat("# ", leaf(o.key), " is not set\n");
    } else {
      out += cat(leaf(o.key), " = ", value, "  # ", one_line(origin), "\n");
    }
  };
  for (const auto& o : options_) {
    if (for_people && section_of(o.key) != section) {
      section = section_of(o.key);
      out += cat(out.empty() ? "[" : "\n[", section, "]\n");
    }
    line(o, o.origin);
  }
  for (const auto& r : rows_) {
    for (size_t i = 0; i < r.size(); ++i) {
      OptionList row;
      row.prefix_ = r.key + ".";
      r.list(i, row);
      out += cat(for_people ? "\n" : "", "[[", r.key, "]]\n");
      // Rows that code added have no origins.
      for (const auto& o : row.options_) line(o, i < r.origins.size() ? r.origins[i].at(o.key) : o.origin);
    }
  }
  return out;
}

std::string OptionList::to_toml() const {
  return render(true);
}
std::string OptionList::digest_text() const {
  return render(false);
}

std::string OptionList::help_text() const {
  std::string out, section;
  const auto describe = [&](const Option& o) {
    const auto value = text_of(o.target);
    const auto range = accepts(o);
    out += cat("  ", leaf(o.key), value.empty() ? "" : " = " + value, "\n      ", o.help,
               range.empty() ? "" : "; " + range, "\n");
  };
  const auto header = [&](const std::string& name) {
    section = name;
    const auto found =
        std::find_if(sections_.begin(), sections_.end(), [&](auto& s) { return s.first == name; });
    out +=
        cat(out.empty() ? "[" : "\n[", name, "]", found == sections_.end() ? "" : "  " + found->second, "\n");
  };
  for (const auto& o : options_) {
    if (section_of(o.key) != section) header(std::string(section_of(o.key)));
    describe(o);
  }
  for (const auto& r : rows_) {
    OptionList row;
    row.prefix_ = r.key + ".";
    const auto blank = r.list_blank(row);
    out += cat("\n[[", r.key, "]]  ", r.help, "\n");
    for (const auto& o : row.options_) describe(o);
  }
  return out;
}

Option& OptionList::find(std::string_view key) {
  std::vector<std::string> keys;
  for (auto& o : options_) {
    if (o.key == key) return o;
    keys.push_back(o.key);
  }
  const auto near = nearest(key, keys);
  fail(ErrorCode::usage, "unknown key ", key, near.empty() ? "" : "; did you mean " + near + "?");
}

}  // namespace trireme
