%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} word before kept="" type value
    word=${line##*[[:space:]]}
    before=${word%%"${word##*=}"}
    before=${before#--*=}
    word=${word##*=}
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then
        kept=${word%%"${word##*:}"}
    fi
    COMPREPLY=()
    while IFS=, read -r type value; do
        if [[ $type == dir ]]; then
            compopt -o plusdirs
        elif [[ $type == file ]]; then
            compopt -o default
        elif [[ $type == plain ]]; then
            value=${value#"$before"}
            COMPREPLY+=("${value#"$kept"}")
            [[ $value == *= ]] && compopt -o nospace
            [[ $value == *[^[:alnum:]_.:/=@%%+-]* ]] && compopt -o filenames
        fi
    done < <(COMP_LINE=$line %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
