/* Values by kind, lists, specs of several values, the pass over the command line, and --help. */
#include "trainers/common/options.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Values -------------------------------------------------------------------------------------------- */

/* Decimal digits, or a number like 1e6 or 2.5e3 that is whole and below 2^53, because doubles have gaps from there on.
 * 0: it is neither. */
static int options_is_whole(const char *text, uint64_t *value) {
    size_t length = strlen(text), digits = strspn(text, "0123456789");
    char *end;
    errno = 0;
    if (!digits || strspn(text, "0123456789.eE+") != length) return 0;
    if (digits == length) {
        *value = strtoull(text, NULL, 10);
        return !errno;
    }
    double number = strtod(text, &end);
    if (*end || !(number < 0x1p53) || number != (double)(uint64_t)number) return 0;
    *value = (uint64_t)number;
    return 1;
}

int options_whole(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *value,
                  program_error *error) {
    uint64_t number;
    if (!options_is_whole(text, &number) || number < least || number > most)
        return program_fail(error, "--%s is '%.40s', must be a whole number from %" PRIu64 " to %" PRIu64, name, text,
                            least, most);
    *value = number;
    return 0;
}

static uint64_t options_most(const options_entry *entry) {
    return entry->most >= 0x1p64 ? UINT64_MAX : (uint64_t)entry->most;
}

static int options_real(const options_entry *entry, const char *name, const char *text, double *value,
                        program_error *error) {
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !(number >= entry->least && number <= entry->most))
        return program_fail(error, "--%s is '%.40s', must be a number from %g to %g", name, text, entry->least,
                            entry->most);
    *value = number;
    return 0;
}

/* "red, green" into text[size]. */
static void options_words(const char *const *words, char *text, size_t size) {
    *text = 0;
    for (int i = 0; words[i]; i++) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s", i ? ", " : "", words[i]);
    }
}

static int options_choice(const options_entry *entry, const char *name, const char *text, int *value,
                          program_error *error) {
    char all[300];
    for (int i = 0; entry->choices[i]; i++)
        if (!strcmp(text, entry->choices[i])) {
            *value = i;
            return 0;
        }
    options_words(entry->choices, all, sizeof all);
    return program_fail(error, "--%s is '%.40s', must be one of: %s", name, text, all);
}

/* One value of a list, which may have only this one. */
static int options_list_value(const options_entry *entry, const char *text, double *value, program_error *error) {
    uint64_t whole = 0;
    int choice = 0, status;
    if (entry->kind == OPTIONS_REALS) return options_real(entry, entry->name, text, value, error);
    if (entry->kind == OPTIONS_WHOLES) {
        status = options_whole(entry->name, text, (uint64_t)entry->least, options_most(entry), &whole, error);
        *value = (double)whole;
        return status;
    }
    status = options_choice(entry, entry->name, text, &choice, error);
    *value = choice;
    return status;
}

static int options_list_read(const options_entry *entry, const char *text, program_error *error) {
    options_list list = {.n = 0};
    char copy[1024], *rest = copy;
    program_error wrong;
    if (strlen(text) >= sizeof copy)
        return program_fail(error, "--%s takes at most %zu characters", entry->name, sizeof copy - 1);
    strcpy(copy, text);
    for (char *part; (part = strsep(&rest, ","));) {
        if (list.n == OPTIONS_LIST)
            return program_fail(error, "--%s lists too many values; the limit is %d", entry->name, OPTIONS_LIST);
        if (options_list_value(entry, part, &list.values[list.n++], &wrong))
            return program_fail(error, "%.440s, or a list of up to %d with commas", wrong.text, OPTIONS_LIST);
    }
    *(options_list *)entry->to = list;
    return 0;
}

static int options_number(const options_entry *entry, const char *name, const char *text, program_error *error) {
    uint64_t whole = 0;
    double real = 0;
    if (entry->kind == OPTIONS_REAL || entry->kind == OPTIONS_FLOAT) {
        if (options_real(entry, name, text, &real, error)) return -1;
        if (entry->kind == OPTIONS_FLOAT)
            *(float *)entry->to = (float)real + 0.0f; /* -0 is 0, also in the settings of checkpoints */
        else
            *(double *)entry->to = real + 0.0;
        return 0;
    }
    if (options_whole(name, text, (uint64_t)entry->least, options_most(entry), &whole, error)) return -1;
    if (entry->kind == OPTIONS_WHOLE32)
        *(uint32_t *)entry->to = (uint32_t)whole;
    else
        *(uint64_t *)entry->to = whole;
    return 0;
}

static int options_text(const options_entry *entry, const char *text, program_error *error) {
    options_texts *texts = entry->to;
    if (texts->n == OPTIONS_MOST_TEXTS)
        return program_fail(error, "--%s is given more than %d times; give it less often", entry->name,
                            OPTIONS_MOST_TEXTS);
    texts->at[texts->n++] = text;
    texts->at[texts->n] = NULL;
    return 0;
}

/* One value of an entry. Messages call it `name`: the entry's name, or those of the option and the key. */
static int options_value(const options_entry *entry, const char *name, const char *text, program_error *error) {
    int status = 0;
    switch (entry->kind) {
    case OPTIONS_WHOLE32:
    case OPTIONS_WHOLE64:
    case OPTIONS_REAL:
    case OPTIONS_FLOAT:
        status = options_number(entry, name, text, error);
        break;
    case OPTIONS_CHOICE:
        status = options_choice(entry, name, text, entry->to, error);
        break;
    case OPTIONS_WHOLES:
    case OPTIONS_REALS:
    case OPTIONS_CHOICES:
        status = options_list_read(entry, text, error);
        break;
    case OPTIONS_READ:
        status = entry->read(entry->to, name, text, error);
        break;
    case OPTIONS_TEXT:
        *(const char **)entry->to = text;
        break;
    case OPTIONS_TEXTS:
        status = options_text(entry, text, error);
        break;
    case OPTIONS_FLAG:
    case OPTIONS_SPEC:
        *(int *)entry->to = 1;
        break;
    }
    if (!status && entry->given) *entry->given = 1;
    return status;
}

/* ---- Specs --------------------------------------------------------------------------------------------- */

static int options_unknown_key(const options_entry *entry, const char *key, program_error *error) {
    char all[200] = "";
    for (int i = 0; entry->keys[i].name; i++) {
        size_t used = strlen(all);
        const char *before = !i ? "" : entry->keys[i + 1].name ? ", " : " and ";
        snprintf(all + used, sizeof all - used, "%s%s", before, entry->keys[i].name);
    }
    return program_fail(error, "--%s knows %s, not '%.40s'", entry->name, all, key);
}

/* What has been given: an entry of the table, or a key of one, and its text. */
typedef struct options_given {
    const options_entry *entry;
    const char *text;
} options_given;

/* Notes that the entry is given, with this text; refuses it where it was before. Messages call it `name`. */
static int options_note(options_given *all, uint32_t *n, const options_entry *entry, const char *name, const char *text,
                        program_error *error) {
    char shown[2][PROGRAM_SHOWN];
    if (entry->kind == OPTIONS_TEXTS || entry->kind == OPTIONS_FLAG) return 0; /* nothing would be lost */
    if (!text) text = "";
    for (uint32_t i = 0; i < *n; i++) {
        if (all[i].entry != entry) continue;
        program_show_both(all[i].text, strlen(all[i].text), text, strlen(text), shown);
        return program_fail(error, "--%s is given twice, as '%s' and as '%s'; give it once", name, shown[0], shown[1]);
    }
    assert(*n < OPTIONS_ENTRIES);
    all[(*n)++] = (options_given){entry, text};
    return 0;
}

/* key=value,key=value, any of the entry's keys. */
static int options_spec(const options_entry *entry, const char *spec, program_error *error) {
    char copy[256], name[128], *rest = copy;
    options_given all[OPTIONS_ENTRIES];
    uint32_t n = 0;
    if (strlen(spec) >= sizeof copy)
        return program_fail(error, "--%s takes at most %zu characters", entry->name, sizeof copy - 1);
    strcpy(copy, spec);
    for (char *part; (part = strsep(&rest, ","));) {
        char *text = strchr(part, '=');
        if (!text) return program_fail(error, "--%s has '%.40s', must be like %s", entry->name, part, entry->example);
        *text++ = 0;
        const options_entry *key = entry->keys;
        while (key->name && strcmp(part, key->name)) key++;
        if (!key->name) return options_unknown_key(entry, part, error);
        snprintf(name, sizeof name, "%s %s", entry->name, part);
        if (options_note(all, &n, key, name, text, error)) return -1;
        if (options_value(key, name, text, error)) return -1;
    }
    return 0;
}

/* ---- The command line ---------------------------------------------------------------------------------- */

void options_add(options_table *table, const char *heading, const options_entry *entries) {
    assert(table->n < OPTIONS_SECTIONS);
    table->section[table->n].heading = heading;
    table->section[table->n++].entries = entries;
}

int options_has(int argc, char **argv, const char *name) {
    size_t n = strlen(name);
    for (int i = 1; i < argc; i++) {
        const char *at = argv[i];
        if (!strncmp(at, "--", 2) && !strncmp(at + 2, name, n) && (!at[2 + n] || at[2 + n] == '=')) return 1;
    }
    return 0;
}

/* The entry with the name name[length], or the only one whose name begins so; NULL: none, or several. */
static const options_entry *options_find(const options_table *table, const char *name, size_t length) {
    const options_entry *found = NULL;
    int several = 0;
    for (int s = 0; s < table->n; s++)
        for (const options_entry *entry = table->section[s].entries; entry->name; entry++) {
            if (strncmp(entry->name, name, length)) continue;
            if (!entry->name[length]) return entry;
            several |= found != NULL;
            found = entry;
        }
    return several ? NULL : found;
}

/* A command line, as far as it has been read. */
typedef struct options_line {
    const options_table *table;
    int argc, at;
    char **argv;
    options_given all[OPTIONS_ENTRIES];
    uint32_t n;
} options_line;

/* The next option, and its value, which is in the same argument or the next one; NULL: none. */
static const options_entry *options_next(options_line *line, const char **text, program_error *error) {
    const char *given = line->argv[line->at++], *name = given + 2, *equals = strchr(given, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const options_entry *entry = strncmp(given, "--", 2) ? NULL : options_find(line->table, name, length);
    if (!entry || (entry->kind == OPTIONS_FLAG && equals)) {
        program_fail(error, "unknown or ambiguous option %.60s; see %s --help", given, line->table->program);
        return NULL;
    }
    *text = equals ? equals + 1 : NULL;
    int optional = entry->kind == OPTIONS_SPEC, wanted = entry->kind != OPTIONS_FLAG && !*text;
    if (wanted && line->at < line->argc && (!optional || line->argv[line->at][0] != '-'))
        *text = line->argv[line->at++];
    else if (wanted && !optional) {
        program_fail(error, "option %.60s needs a value; see %s --help", given, line->table->program);
        return NULL;
    }
    return entry;
}

static int options_read_one(options_line *line, options_pass pass, program_error *error) {
    const char *text;
    const options_entry *entry = options_next(line, &text, error);
    if (!entry || options_note(line->all, &line->n, entry, entry->name, text, error)) return -1;
    if (pass == OPTIONS_FIRST && !entry->first) return 0;
    if (entry->kind == OPTIONS_SPEC && text && options_spec(entry, text, error)) return -1;
    return options_value(entry, entry->name, text, error);
}

int options_read(const options_table *table, options_pass pass, int argc, char **argv, program_error *error) {
    options_line line = {.table = table, .argc = argc, .at = 1, .argv = argv};
    while (line.at < argc && argv[line.at][0] == '-' && argv[line.at][1] && strcmp(argv[line.at], "--"))
        if (options_read_one(&line, pass, error)) return -1;
    if (line.at < argc && !strcmp(argv[line.at], "--")) line.at++;
    if (line.at == argc) return 0;
    return program_fail(error, "'%.60s' is no option; see %s --help", argv[line.at], table->program);
}

/* ---- --help -------------------------------------------------------------------------------------------- */

enum { OPTIONS_INDENT = 22, OPTIONS_COLUMNS = 110 };

/* What the entry's value is called. */
static const char *options_value_name(const options_entry *entry) {
    static const char *const names[] = {[OPTIONS_WHOLE32] = "N",   [OPTIONS_WHOLE64] = "N",
                                        [OPTIONS_REAL] = "X",      [OPTIONS_FLOAT] = "X",
                                        [OPTIONS_CHOICE] = "NAME", [OPTIONS_WHOLES] = "N,...",
                                        [OPTIONS_REALS] = "X,...", [OPTIONS_CHOICES] = "NAME,...",
                                        [OPTIONS_TEXT] = "FILE",   [OPTIONS_TEXTS] = "FILE",
                                        [OPTIONS_FLAG] = "",       [OPTIONS_READ] = "VALUE",
                                        [OPTIONS_SPEC] = "[SPEC]"};
    return entry->value ? entry->value : names[entry->kind];
}

static void options_list_default(const options_entry *entry, char *text, size_t size) {
    const options_list *list = entry->to;
    for (uint32_t i = 0; i < list->n; i++) {
        size_t used = strlen(text);
        const char *comma = i ? "," : "";
        if (entry->kind == OPTIONS_CHOICES)
            snprintf(text + used, size - used, "%s%s", comma, entry->choices[(int)list->values[i]]);
        else
            snprintf(text + used, size - used, "%s%.15g", comma, list->values[i]);
    }
}

/* The default in words; "" where there is none. */
static void options_default(const options_entry *entry, char *text, size_t size) {
    *text = 0;
    if (entry->standard)
        snprintf(text, size, "%s", entry->standard);
    else if (entry->kind == OPTIONS_WHOLE32)
        snprintf(text, size, "%" PRIu32, *(const uint32_t *)entry->to);
    else if (entry->kind == OPTIONS_WHOLE64)
        snprintf(text, size, "%" PRIu64, *(const uint64_t *)entry->to);
    else if (entry->kind == OPTIONS_REAL)
        snprintf(text, size, "%.15g", *(const double *)entry->to);
    else if (entry->kind == OPTIONS_FLOAT)
        snprintf(text, size, "%g", (double)*(const float *)entry->to);
    else if (entry->kind == OPTIONS_CHOICE)
        snprintf(text, size, "%s", entry->choices[*(const int *)entry->to]);
    else if (entry->kind == OPTIONS_WHOLES || entry->kind == OPTIONS_REALS || entry->kind == OPTIONS_CHOICES)
        options_list_default(entry, text, size);
}

/* Prints a word from `column` on, or on a new line; returns the column after it. */
static int options_word(const char *word, int length, int column) {
    if (column > OPTIONS_INDENT && column + 1 + length > OPTIONS_COLUMNS)
        column = printf("\n%*s", OPTIONS_INDENT, "") - 1;
    else if (column > OPTIONS_INDENT)
        column += printf(" ");
    return column + printf("%.*s", length, word);
}

static int options_wrap(const char *text, int column) {
    while (*text) {
        int length = (int)strcspn(text, " ");
        column = options_word(text, length, column);
        text += length + (text[length] == ' ');
    }
    return column;
}

static void options_help_one(const options_entry *entry) {
    char words[300], standard[300], bracketed[304];
    const char *value = options_value_name(entry), *help = entry->help ? entry->help : "";
    int column = printf("  --%s%s%s", entry->name, *value ? " " : "", value);
    options_default(entry, standard, sizeof standard);
    if (*help || *standard || entry->choices)
        column += printf("%*s", column < OPTIONS_INDENT ? OPTIONS_INDENT - column : 1, "");
    if (entry->choices) {
        options_words(entry->choices, words, sizeof words - 1);
        column = options_wrap(strcat(words, *help ? ":" : ""), column);
    }
    column = options_wrap(help, column);
    int length = snprintf(bracketed, sizeof bracketed, "[%s]", standard);
    if (*standard) options_word(bracketed, length, column);
    putchar('\n');
}

static int options_matters(const options_table *table, const options_entry *entry) {
    for (const char *const *name = table->matters; name && *name; name++)
        if (!strcmp(*name, entry->name)) return 1;
    return 0;
}

void options_help(const options_table *table) {
    const char *heading = NULL; /* of a section of which nothing has been listed yet */
    fputs(table->about, stdout);
    if (table->matters) printf("what matters first\n");
    for (const char *const *name = table->matters; name && *name; name++) {
        const options_entry *entry = options_find(table, *name, strlen(*name));
        assert(entry);
        options_help_one(entry);
    }
    if (table->matters) putchar('\n');
    for (int s = 0; s < table->n; s++) {
        if (table->section[s].heading) heading = table->section[s].heading;
        for (const options_entry *entry = table->section[s].entries; entry->name; entry++) {
            if (options_matters(table, entry)) continue;
            if (heading) printf("%s\n", heading);
            heading = NULL;
            options_help_one(entry);
        }
    }
}
