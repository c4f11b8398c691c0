/* ptx_read.cc - reads a text of PTX. Whatever it does not know ends it, with the line: a module that has been read has
 * no instruction, modifier, special register or directive that nobody implements. */
#include "ptx_module.h"

#include <cxxabi.h>
#include <stdlib.h>

#include <map>
#include <unordered_map>

namespace ptx {
namespace {

struct error {
    uint32_t line;
    std::string text;
};

/* >>tokens: words (with their dots), numbers, strings, and punctuation, one character each */
struct token {
    std::string text;
    uint32_t line;
};

bool in_word(char c) {
    return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
}

class scanner {
    const std::string &text;
    size_t at = 0;
    uint32_t line = 1;

    bool skip(const char *begins, const char *ends) { /* a comment */
        if (text.compare(at, 2, begins) != 0) return false;
        size_t end = text.find(ends, at + 2);
        if (end == std::string::npos) end = text.size();
        for (; at < end; at++) line += text[at] == '\n';
        if (*ends != '\n') at += 2;
        return true;
    }
    void skip_blanks() {
        for (;;) {
            while (at < text.size() && isspace(static_cast<unsigned char>(text[at]))) line += text[at++] == '\n';
            if (!skip("//", "\n") && !skip("/*", "*/")) return;
        }
    }
    size_t end_of_token() const {
        size_t end = at + 1;
        if (text[at] == '"') {
            end = text.find('"', end);
            if (end == std::string::npos) throw error{line, "a string does not end"};
            return end + 1;
        }
        bool negative = text[at] == '-' && end < text.size() && isdigit(static_cast<unsigned char>(text[end]));
        if (!negative && !in_word(text[at])) return end;
        while (end < text.size() && (in_word(text[end]) || text.compare(end, 2, "::") == 0))
            end += text[end] == ':' ? 2 : 1;
        return end;
    }

  public:
    explicit scanner(const std::string &t) : text(t) {}
    std::vector<token> all() {
        std::vector<token> tokens;
        for (skip_blanks(); at < text.size(); skip_blanks()) {
            size_t end = end_of_token();
            tokens.push_back({text.substr(at, end - at), line});
            at = end;
        }
        tokens.push_back({"", line});
        return tokens;
    }
};

struct name { /* of a register: what it is, and its first word or its predicate */
    kind type;
    int32_t at;
};
struct jump {
    uint32_t from;
    std::string label;
    uint32_t line;
};

size_t bytes_of(kind type) {
    return type == B16 ? 2 : type == B64 ? 8 : 4;
}
bool fits(kind wanted, kind found) {
    return wanted == found || (wanted == B32 && found == F32) || (wanted == F32 && found == B32);
}

enum : uint32_t { IS_PREDICATE = 0x80000000u }; /* among reads and writes, until an entry has been read */

class reader {
    module &m;
    std::vector<token> tokens;
    size_t at = 0;
    std::map<std::pair<kind, uint64_t>, int32_t> constants;
    std::unordered_map<std::string, uint32_t> forms;
    std::unordered_map<std::string, form> known;
    /* of the entry */
    entry *e = nullptr;
    std::vector<std::unordered_map<std::string, name>> names; /* of the entry, and of each block within it */
    std::unordered_map<std::string, uint64_t> parameters;
    std::unordered_map<std::string, uint32_t> labels;
    std::vector<jump> jumps;

    /* >>what comes next */
    const std::string &next() const {
        return tokens[at].text;
    }
    uint32_t line() const {
        return tokens[at].line;
    }
    [[noreturn]] void stop(const std::string &why) const {
        throw error{line(), why};
    }
    bool accept(const char *text) {
        if (next() != text) return false;
        at++;
        return true;
    }
    void expect(const char *text) {
        if (!accept(text)) stop("expected `" + std::string(text) + "`, found `" + next() + "`");
    }
    std::string word() {
        if (next().empty() || !in_word(next()[0])) stop("expected a word, found `" + next() + "`");
        return tokens[at++].text;
    }
    static bool is_number(const std::string &text) {
        return !text.empty() && (isdigit(static_cast<unsigned char>(text[0])) || text[0] == '-') &&
               text.compare(0, 2, "0f") != 0;
    }
    int64_t number() {
        char *end;
        const std::string &text = next();
        int64_t value =
            text[0] == '-' ? strtoll(text.c_str(), &end, 0) : static_cast<int64_t>(strtoull(text.c_str(), &end, 0));
        if (!is_number(text) || *end) stop("expected a number, found `" + text + "`");
        at++;
        return value;
    }
    kind type(const std::string &text) const {
        if (text == ".pred") return PREDICATE;
        if (text == ".b16" || text == ".u16" || text == ".s16") return B16;
        if (text == ".b32" || text == ".u32" || text == ".s32") return B32;
        if (text == ".b64" || text == ".u64" || text == ".s64") return B64;
        if (text == ".f32") return F32;
        stop("the type `" + text + "` is not known to this interpreter of PTX");
    }

    /* >>operands */
    int32_t constant(kind of, uint64_t value) {
        if (of == PREDICATE) return value ? ALWAYS : NEVER;
        auto made = constants.emplace(std::make_pair(of, value), 0);
        if (made.second) {
            made.first->second = ~static_cast<int32_t>(m.constants.size());
            for (unsigned lane = 0; lane < LANES; lane++) {
                m.constants.push_back(static_cast<uint32_t>(value));
                if (of == B64) m.constants.push_back(static_cast<uint32_t>(value >> 32)); /* little-endian */
            }
        }
        return made.first->second;
    }
    const name *find_register(const std::string &text) const {
        for (auto scope = names.rbegin(); scope != names.rend(); ++scope) {
            auto found = scope->find(text);
            if (found != scope->end()) return &found->second;
        }
        return nullptr;
    }
    static uint32_t trace_of(const name &r) {
        return r.type == PREDICATE ? static_cast<uint32_t>(r.at) | IS_PREDICATE : static_cast<uint32_t>(r.at) / LANES;
    }
    name register_of(kind wanted) {
        std::string text = word();
        const name *found = find_register(text);
        at--;
        if (!found) stop("`" + text + "` is no register of this entry");
        if (!fits(wanted, found->type)) stop("`" + text + "` is not of the type that the instruction has here");
        at++;
        return *found;
    }
    int32_t read_register(instruction &i, kind wanted) {
        name r = register_of(wanted);
        i.reads[i.n_reads++] = trace_of(r);
        return r.at;
    }
    int32_t written_register(instruction &i, kind wanted) {
        name r = register_of(wanted);
        i.writes[i.n_writes++] = trace_of(r);
        return r.at;
    }
    int32_t special_register(const std::string &text) const {
        static const std::map<std::string, unsigned> known = {
            {"%tid.x", TID}, {"%ctaid.x", CTAID}, {"%ntid.x", NTID}, {"%nctaid.x", NCTAID}, {"%laneid", LANEID}};
        auto found = known.find(text);
        if (found == known.end())
            stop("`" + text + "` is not known to this interpreter of PTX: no register, nor a special one");
        return static_cast<int32_t>(found->second * LANES);
    }
    int32_t value(instruction &i, kind wanted, bool moves) {
        const std::string text = next();
        if (text.compare(0, 2, "0f") == 0 && text.size() == 10) {
            if (wanted != F32) stop("`" + text + "` is a float, and the instruction has none here");
            at++;
            return constant(F32, strtoull(text.c_str() + 2, nullptr, 16));
        }
        if (is_number(text)) {
            if (wanted == F32) stop("`" + text + "` is no float, and the instruction has one here");
            uint64_t bits = static_cast<uint64_t>(number());
            return constant(wanted, wanted == B64   ? bits
                                    : wanted == B32 ? static_cast<uint32_t>(bits)
                                                    : static_cast<uint16_t>(bits));
        }
        auto parameter = parameters.find(text);
        if (moves && wanted == B64 && parameter != parameters.end()) {
            at++;
            return constant(B64, PARAMETERS_AT + parameter->second);
        }
        if (moves && wanted == B32 && text[0] == '%' && !find_register(text)) {
            int32_t special = special_register(text);
            at++;
            return special;
        }
        return read_register(i, wanted);
    }
    void address(instruction &i, bool in_parameters) {
        expect("[");
        auto parameter = parameters.find(next());
        if (parameter != parameters.end() && !in_parameters)
            stop("`" + next() + "` is in .param, which only ld.param reaches");
        if (parameter != parameters.end())
            i.from[0] = constant(B64, PARAMETERS_AT + parameter->second), at++;
        else
            i.from[0] = read_register(i, B64);
        if (accept("+")) i.offset = number();
        expect("]");
        i.n_from = 1;
    }
    void vector(instruction &i, const form &f, bool written) {
        const std::vector<kind> &types = written ? f.to : f.from;
        if (f.n > 1) expect("{");
        const name *first = find_register(next());
        bool wide = f.run_wide && first && first->type == f.wide;
        if (wide) i.run = f.run_wide;
        for (unsigned k = 0; k < types.size(); k++) {
            if (k) expect(",");
            kind wanted = wide ? f.wide : types[k];
            if (written)
                i.to[k] = written_register(i, wanted);
            else
                i.from[i.n_from++] = value(i, wanted, false);
        }
        if (f.n > 1) expect("}");
    }
    void values(instruction &i, const form &f) {
        bool first = true;
        i.to[1] = -1;
        for (unsigned k = 0; k < f.to.size(); k++) {
            bool second = k == 1 && f.second_to;
            if (second && !accept("|")) continue;
            if (!first && !second) expect(",");
            i.to[k] = written_register(i, f.to[k]);
            first = false;
        }
        for (kind wanted : f.from) {
            if (!first) expect(",");
            i.from[i.n_from++] = value(i, wanted, f.operands == form::MOVE);
            first = false;
        }
    }
    void barrier_number() {
        if (number() != 0)
            at--, stop("only barrier 0, of all threads of the block, is known to this interpreter of PTX");
    }
    void operands(instruction &i, const form &f) {
        switch (f.operands) {
        case form::LABEL:
            jumps.push_back({static_cast<uint32_t>(m.code.size()), next(), line()});
            word();
            break;
        case form::NUMBER:
            barrier_number();
            break;
        case form::VOTE_AT_NUMBER:
            i.to[0] = written_register(i, PREDICATE), expect(",");
            barrier_number(), expect(",");
            i.from[i.n_from++] = read_register(i, PREDICATE);
            break;
        case form::ADDRESS_FIRST:
            if (!f.to.empty()) vector(i, f, true), expect(",");
            address(i, f.is_parameter);
            if (!f.from.empty()) expect(","), vector(i, f, false);
            break;
        default:
            values(i, f);
        }
    }

    /* >>statements */
    uint32_t form_number(const std::string &opcode) {
        auto made = forms.emplace(opcode, static_cast<uint32_t>(m.forms.size()));
        if (made.second) m.forms.push_back(opcode);
        return made.first->second;
    }
    void instruct() {
        instruction i = {};
        i.guard = ALWAYS, i.line = line();
        if (accept("@")) {
            i.negated = accept("!") ? ALL : 0u;
            i.guard = static_cast<uint32_t>(read_register(i, PREDICATE));
        }
        std::string opcode = word(), why;
        at--;
        auto met = known.emplace(opcode, form());
        const form *f = &met.first->second;
        if (met.second && !find_form(opcode, &met.first->second, &why)) stop(why);
        if (i.guard != ALWAYS && (f->next == TOGETHER || f->next == BARRIER || f->next == SLEEP))
            stop("`" + opcode + "` under a predicate is not known to this interpreter of PTX");
        at++;
        i.run = f->run, i.next = f->next, i.form = form_number(opcode), i.n = static_cast<uint8_t>(f->n);
        operands(i, *f);
        if (next() != ";") stop("`" + opcode + "`: `" + next() + "` after its operands");
        at++;
        m.code.push_back(i);
    }
    void declare_registers() {
        kind of = type(word());
        do {
            std::string prefix = word();
            bool many = accept("<");
            int64_t n = many ? number() : 1;
            if (many) expect(">");
            for (int64_t k = 0; k < n; k++) {
                name made = {of, static_cast<int32_t>(of == PREDICATE ? e->n_predicates : e->n_words)};
                if (!names.back().emplace(many ? prefix + std::to_string(k) : prefix, made).second)
                    stop("`" + prefix + "` again");
                if (of == PREDICATE)
                    e->n_predicates++;
                else
                    e->n_words += LANES * (of == B64 ? 2 : 1);
            }
        } while (accept(","));
        expect(";");
    }
    void statement() {
        if (accept(".reg")) {
            declare_registers();
        } else if (accept(".pragma")) { /* advice to ptxas */
            while (!accept(";")) {
                if (next().empty()) stop("the text ends within a statement");
                at++;
            }
        } else if (tokens[at + 1].text == ":") {
            if (!labels.emplace(next(), static_cast<uint32_t>(m.code.size())).second)
                stop("label `" + next() + "` again");
            at += 2;
        } else if (accept("{")) {
            names.emplace_back();
        } else if (names.size() > 1 && accept("}")) {
            names.pop_back();
        } else if (next()[0] == '.') {
            stop("`" + next() + "` is not known to this interpreter of PTX");
        } else {
            instruct();
        }
    }

    /* >>entries */
    void declare_parameter() {
        parameter p = {0, 1, 0};
        expect(".param");
        if (accept(".align")) p.alignment = static_cast<size_t>(number());
        std::string of = word();
        p.bytes = of == ".b8" || of == ".u8" ? 1 : bytes_of(type(of));
        if (p.bytes > p.alignment) p.alignment = p.bytes;
        std::string symbol = word();
        if (accept("[")) p.bytes *= static_cast<size_t>(number()), expect("]");
        p.offset = (e->parameter_bytes + p.alignment - 1) / p.alignment * p.alignment;
        e->parameter_bytes = p.offset + p.bytes;
        e->parameters.push_back(p);
        parameters[symbol] = p.offset;
    }
    void limits() {
        for (;;) {
            if (accept(".maxntid")) {
                e->most_threads = static_cast<unsigned>(number());
                while (accept(",")) e->most_threads *= static_cast<unsigned>(number());
            } else if (accept(".minnctapersm")) {
                number(); /* advice to ptxas */
            } else {
                return;
            }
        }
    }
    void resolve() {
        for (const jump &j : jumps) {
            auto found = labels.find(j.label);
            if (found == labels.end()) throw error{j.line, "no label `" + j.label + "` in this entry"};
            m.code[j.from].target = found->second;
        }
        for (uint32_t pc = e->begin; pc < e->end; pc++) {
            instruction &i = m.code[pc];
            if (i.next == BRANCH && i.target == e->end) throw error{i.line, "a branch behind the last instruction"};
            for (uint32_t &r : i.reads) r = r & IS_PREDICATE ? (r & ~IS_PREDICATE) + e->n_words / LANES : r;
            for (uint32_t &r : i.writes) r = r & IS_PREDICATE ? (r & ~IS_PREDICATE) + e->n_words / LANES : r;
        }
        const instruction *last = e->end > e->begin ? &m.code[e->end - 1] : nullptr;
        if (!last || last->guard != ALWAYS || (last->next != EXIT && last->next != BRANCH))
            stop("the entry does not end with `ret`, `exit` or a branch");
    }
    /* As a launch says it: without the namespace, the result and the parameters. */
    static std::string demangled(const std::string &symbol) {
        int status;
        char *text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
        if (!text) return symbol;
        std::string result = text;
        free(text);
        if (result.compare(0, 5, "void ") == 0) result.erase(0, 5);
        result = result.substr(0, result.find('('));
        size_t scope = result.rfind("::", result.find('<'));
        return scope == std::string::npos ? result : result.substr(scope + 2);
    }
    void read_entry() {
        m.entries.emplace_back(new entry);
        e = m.entries.back().get();
        names.assign(1, {}), parameters.clear(), labels.clear(), jumps.clear();
        e->symbol = word(), e->name = demangled(e->symbol);
        e->n_words = SPECIALS * LANES, e->n_predicates = PREDICATES;
        if (accept("(") && !accept(")")) {
            do declare_parameter();
            while (accept(","));
            expect(")");
        }
        limits();
        expect("{");
        e->begin = static_cast<uint32_t>(m.code.size());
        while (names.size() > 1 || !accept("}")) {
            if (next().empty()) stop("the text ends within an entry");
            statement();
        }
        e->end = static_cast<uint32_t>(m.code.size());
        resolve();
    }

  public:
    explicit reader(module &into) : m(into), tokens(scanner(into.text).all()) {}
    void read() {
        while (!next().empty()) {
            if (accept(".version")) {
                word();
            } else if (accept(".target")) {
                m.target = word();
            } else if (accept(".address_size")) {
                if (number() != 64) at--, stop("addresses of 64 bits only");
            } else {
                if (!accept(".visible")) accept(".weak");
                if (!accept(".entry")) stop("`" + next() + "` is not known to this interpreter of PTX");
                read_entry();
            }
        }
        if (m.entries.empty()) stop("no entry");
    }
};

bool has_part(const std::string &name, const std::string &part) {
    return ("." + name + ".").find("." + part + ".") != std::string::npos;
}

} // namespace

bool find_form(const std::string &name, form *found, std::string *why) {
    if (find_alu_form(name, found) || find_memory_form(name, found) || find_lane_form(name, found)) return true;
    std::string operation = name.substr(0, name.find('.'));
    bool unrounded = has_part(name, "f32") && !has_part(name, "rn") && !has_part(name, "rz") && !has_part(name, "rm") &&
                     !has_part(name, "rp") && (operation == "add" || operation == "sub" || operation == "mul");
    *why = "`" + name + "` ";
    if (has_part(name, "ftz"))
        *why += "makes subnormal floats 0, which the host does not: compile without --ftz and --use_fast_math";
    else if (has_part(name, "approx") || has_part(name, "full"))
        *why += "rounds as the GPU likes: compile without --use_fast_math, and call no approximate function";
    else if (unrounded)
        *why += "without a rounding may become part of an fma: compile with --fmad=false";
    else
        *why +=
            "is not known to this interpreter of PTX: add it to ptx_alu.cc, ptx_memory.cc or ptx_lanes.cc, with a test";
    return false;
}

std::string module::line(uint32_t number) const {
    if (number == 0 || number > lines.size()) return "";
    size_t begin = lines[number - 1];
    std::string found = text.substr(begin, text.find('\n', begin) - begin), result;
    for (char c : found)
        if (c != '\t' && c != ' ')
            result += c;
        else if (!result.empty() && result.back() != ' ')
            result += ' ';
    return result;
}

entry *module::find(const std::string &wanted) const {
    for (const auto &candidate : entries)
        if (candidate->name == wanted) return candidate.get();
    return nullptr;
}

std::unique_ptr<module> read_module(const std::string &text, std::string *why) {
    std::unique_ptr<module> m(new module);
    m->text = text;
    m->lines.push_back(0);
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) m->lines.push_back(++at);
    try {
        reader(*m).read();
    } catch (const error &found) {
        *why = "PTX line " + std::to_string(found.line) + ": " + found.text;
        return nullptr;
    }
    m->executed.reset(new std::atomic<uint64_t>[m->code.size()]());
    return m;
}

} // namespace ptx
